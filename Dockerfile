# One image for each program:
#
#   docker build --target scaler|activator|fetcher|cli \
#     --build-arg VERSION=... --build-arg COMMIT=... --build-arg DATE=... .
#
# The final stages start from scratch and not from a distroless image: the
# programs are static, and all they need besides is three files that the
# builder has (CA certificates, a user, a group) and an empty /tmp. So there is
# one base image to watch instead of two.
#
# Every image runs with a read-only root file system. Only the cli's demo and
# the fetcher write: to /tmp, where it is mounted, and to the models' volume.

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOMODCACHE=/cache/mod GOCACHE=/cache/build

RUN mkdir -p /out/etc /out/tmp /out/usr/local/bin && chmod 1777 /out/tmp \
    && echo 'nonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin' > /out/etc/passwd \
    && echo 'nonroot:x:65532:' > /out/etc/group

COPY go.mod go.sum ./
RUN --mount=type=cache,target=/cache/mod go mod download

COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=""
ARG COMMIT=""
ARG DATE=""
RUN --mount=type=cache,target=/cache/mod --mount=type=cache,target=/cache/build \
    info=github.com/pilotlight-dev/pilotlight/internal/buildinfo; \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X $info.version=$VERSION -X $info.commit=$COMMIT -X $info.date=$DATE" \
    -o /bin/built/ ./cmd/pilotlight ./cmd/pilotlight-scaler ./cmd/pilotlight-activator ./cmd/pilotlight-fetcher

FROM scratch AS base
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/ /
ARG VERSION=""
ARG COMMIT=""
ARG DATE=""
LABEL org.opencontainers.image.source="https://github.com/pilotlight-dev/pilotlight" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.created="$DATE"
# A number, so that Kubernetes can check runAsNonRoot without reading the image.
USER 65532:65532

FROM base AS scaler
LABEL org.opencontainers.image.title="pilotlight-scaler"
COPY --from=build /bin/built/pilotlight-scaler /usr/local/bin/pilotlight-scaler
EXPOSE 6000 6001 8080
ENTRYPOINT ["/usr/local/bin/pilotlight-scaler"]

FROM base AS activator
LABEL org.opencontainers.image.title="pilotlight-activator"
COPY --from=build /bin/built/pilotlight-activator /usr/local/bin/pilotlight-activator
EXPOSE 8000 8081
ENTRYPOINT ["/usr/local/bin/pilotlight-activator"]

FROM base AS fetcher
LABEL org.opencontainers.image.title="pilotlight-fetcher"
COPY --from=build /bin/built/pilotlight-fetcher /usr/local/bin/pilotlight-fetcher
ENTRYPOINT ["/usr/local/bin/pilotlight-fetcher"]

FROM base AS cli
LABEL org.opencontainers.image.title="pilotlight"
COPY --from=build /bin/built/pilotlight /usr/local/bin/pilotlight
ENTRYPOINT ["/usr/local/bin/pilotlight"]
