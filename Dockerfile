# A service in a container:
#   docker build -t mhpatchcore .
#   docker run -p 8080:8080 -v /srv/models:/models -v /srv/token:/run/secrets/token:ro mhpatchcore
# scripts/test-dockerfile.sh tests it, also where there is no Docker.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/mhpatchcore
RUN /opt/mhpatchcore/bin/pip install --no-cache-dir --disable-pip-version-check '.[serve,mqtt]'

FROM python:3.12-slim
COPY --from=build /opt/mhpatchcore /opt/mhpatchcore
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin mhpatchcore \
    && install -d -o mhpatchcore -g mhpatchcore /models
ENV PATH=/opt/mhpatchcore/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MHPATCHCORE_CACHE=/tmp/mhpatchcore \
    MPLCONFIGDIR=/tmp/matplotlib
USER mhpatchcore
VOLUME /models
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD python -c "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/v2/health/ready', timeout=4)"
STOPSIGNAL SIGTERM
ENTRYPOINT ["mhpatchcore"]
CMD ["serve", "/models", "--host", "0.0.0.0", "--port", "8080", "--token-file", "/run/secrets/token"]
