"""Is this installation whole? Small checks that look and change nothing, and what each of them found."""
