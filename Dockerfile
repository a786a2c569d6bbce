# Both programs, gpushare-doctor and kubectl-inspect-gpushare: `make image IMAGE=…`. The chart names the command.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /source
# hatchling, which builds the wheel, is pinned with the rest.
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY . .
RUN python -m pip wheel --no-deps --wheel-dir /wheels .
RUN python -m venv --without-pip /opt/gpushare
RUN python -m pip --python /opt/gpushare/bin/python install --only-binary :all: --no-compile /wheels/*.whl
# The root of a container is read-only: what is not compiled here is compiled at every start. By hash, since
# times change on the way into the last stage.
RUN /opt/gpushare/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/gpushare/lib

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="gpushare" \
      org.opencontainers.image.description="GPU cards shared by memory on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gpushare /opt/gpushare
# HOME: the user has no entry in passwd, and the Kubernetes client does not start without a home.
ENV PATH=/opt/gpushare/bin:$PATH HOME=/ PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# By number, so that runAsNonRoot can be checked. The device plugin's pod says 0 for itself.
USER 65532:65532
CMD ["gpushare-extender", "--help"]
