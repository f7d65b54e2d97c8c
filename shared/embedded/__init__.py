"""PostgreSQL and nats-server from wheels, started on this machine: for ``tocsin up`` and for tests."""
