# astra-rl on Debian slim, as a user without rights:
#
#   docker build -t astra-rl .
#   docker run --rm -it -v "$PWD:/work" astra-rl demo
#
# The folder that the runs are to lie in is mounted at /work and must be writable for user 1000 (or give --user).
FROM node:20-bookworm-slim

RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates g++ git libopenblas0-openmp libtorch-dev \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/astra-rl
COPY . .
RUN npm ci --no-audit --no-fund \
 && npm run setup \
 && ln -s /opt/astra-rl/packages/astra-rl/bin/astra-rl.js /usr/local/bin/astra-rl \
 && npm cache clean --force

USER node
WORKDIR /work
ENTRYPOINT ["astra-rl"]
CMD ["--help"]
