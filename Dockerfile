# One image for every process: tocsin api | scheduler | worker | migrate. NATS and PostgreSQL are not in it.
#
# Build: docker build -t tocsin .
# Health checks belong to who runs it (docker-compose.yml, the Helm chart): each command has one of its own.

FROM python:3.11-slim-trixie AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# Dependencies first: this layer is rebuilt only when the lock changes. Only wheels, so nothing is ever compiled here.
# No pip in it; the one of the base image can change nothing, as all of this belongs to root.
COPY requirements-production.lock ./
RUN python -m venv --without-pip /opt/tocsin \
 && python -m pip --python /opt/tocsin/bin/python install --only-binary :all: --require-hashes \
    -r requirements-production.lock

# The build backend is locked as well; it stays in this stage.
COPY requirements.lock ./
RUN sed -n '/^\(hatchling\|packaging\|pathspec\|pluggy\|tomlkit\|trove-classifiers\)==/,/[^\\]$/p' requirements.lock \
      > backend.lock \
 && python -m venv /build/backend \
 && /build/backend/bin/pip install --only-binary :all: --require-hashes -r backend.lock

COPY pyproject.toml README.md ./
COPY api ./api
COPY cli ./cli
COPY migrations ./migrations
COPY monitoring_scheduler ./monitoring_scheduler
COPY monitoring_worker ./monitoring_worker
COPY shared ./shared
RUN /build/backend/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /build/dist . \
 && python -m pip --python /opt/tocsin/bin/python install --no-deps /build/dist/*.whl

FROM python:3.11-slim-trixie
LABEL org.opencontainers.image.title="Tocsin" \
      org.opencontainers.image.description="A monitoring backend that never goes blind"
COPY --from=build /opt/tocsin /opt/tocsin

# Nothing is written but the readiness file in /tmp, which may be a tmpfs: the root file system can be read-only.
# In a container "loopback only", the default elsewhere, would be of no use.
ENV PATH=/opt/tocsin/bin:$PATH \
    HOME=/nonexistent \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TOCSIN_API_HOST=0.0.0.0 \
    TOCSIN_METRICS_HOST=0.0.0.0

# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
EXPOSE 8000 9100
ENTRYPOINT ["tocsin"]
CMD ["--help"]
