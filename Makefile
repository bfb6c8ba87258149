# Two commands: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= $(shell tools/fastest-python)
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
export UV_LINK_MODE ?= copy
# Each process that tests and benchmarks start would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install install-dev native classes lock crds downloads kubectl-plugin release reference docs docs-run house demo demo-split test test-long test-again test-clients test-kubernetes alerts lint types simulate trace-digest console console-test mutants model model-synchronous model-certification model-crosslog bench bench-door bench-peers bench-guard bench-scale plots faults rejoin rejoin-under-load longevity pitr archive-faults rehearse bulk bulk-faults lost-everything recovery-crashes soak rolling determinism w3c roundtrip rdf4j-differences rdf4j-suite fuzz fuzz-api divergence backup-large clean up down cluster cluster-down kind image e2e synchronous undecided

help: ## this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk 'BEGIN{FS=":.*?## "}{printf "  make %-17s %s\n",$$1,$$2}'

$(VENV)/.uv: requirements-uv.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "TxLog needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements-uv.lock
	touch $@

$(VENV)/.installed: $(VENV)/.uv requirements.lock pyproject.toml
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --offline -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock
	touch $@

install: $(VENV)/.installed ## everything that TxLog needs, into ./.venv
install-dev: $(VENV)/.installed-dev ## and what its tests need

native: install-dev ## compile the hot rooms of a master with mypyc (needs a C compiler; without it they are interpreted)
	@$(BIN)/python -m txlog.native

classes: install ## Spark's classes ready to be mapped: its start takes half as much processor (90 MB in .venv)
	@$(BIN)/python -m txlog.pipeline.jvm_class_archive

SPARK_CLASSES := $(VENV)/txlog-java/spark.jsa
$(SPARK_CLASSES): $(VENV)/.installed
	-@$(BIN)/python -m txlog.pipeline.jvm_class_archive

downloads: install-dev ## what tests need of Maven Central and Debian; a test fetches for itself what is missing
	-@$(BIN)/python -m e2e.conformance.downloads

lock: $(VENV)/.uv ## compile the lock files again
	for f in requirements requirements-uv requirements-dev requirements-demo requirements-peers requirements-image requirements-docs; do $(UV) pip compile --quiet $$(test $$f != requirements-demo || echo --no-deps) --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $$f.in -o $$f.lock; done

lint: install-dev ## ruff and the import contracts
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports --no-logo

house: install-dev ## names, sizes, words and links that a newcomer meets, counted (LIST=banned_words: the places of a count)
	@$(BIN)/python tools/house.py $(if $(LIST),--list=$(LIST))

types: install-dev ## mypy, strict
	$(BIN)/mypy

test: install-dev ## all tests but those that take minutes each, on the real components
	$(MAKE) --no-print-directory -j3 native lint types $(SPARK_CLASSES) downloads
	$(BIN)/pytest -n 6 -m "not kubernetes and not long"

test-long: install-dev $(SPARK_CLASSES) ## the tests that take minutes each, and that make test leaves out
	$(BIN)/pytest -n 2 -m long

test-again: install-dev ## the tests that failed last time, one after the other; with none to repeat it fails
	$(BIN)/pytest -m "not kubernetes and not long" --last-failed --last-failed-no-failures none

test-kubernetes: install-dev ## resources, operator and charts on a real API server (the first time its programs are built: 10 minutes)
	@test -n "$${KUBEBUILDER_ASSETS:-}" || $(BIN)/python -m e2e.cluster.programs
	$(BIN)/pytest -m kubernetes

alerts: install-dev ## promtool's tests of the chart's alerts, and each rule changed (the first time promtool is built: 2 minutes)
	@$(BIN)/pytest -p no:cacheprovider operator/tests/test_alerts.py

crds: install ## the resources' definitions for Kubernetes, from the models that read manifests
	@$(BIN)/python -m txlog.config.crds crds charts/txlog-operator/crds-of-txlog

kubectl-plugin: install ## build/kubectl-txlog, the plugin as one file that needs only Python: put it on PATH
	@$(BIN)/python tools/kubectl_plugin.py build/kubectl-txlog && echo build/kubectl-txlog

release: install-dev ## image for amd64 and arm64, charts, list of contents, signatures, pushed: REGISTRY=HOST/PATH (UNSIGNED=1; KEY=cosign.key)
	@$(BIN)/python tools/release.py --registry "$(or $(REGISTRY),$(error REGISTRY=HOST/PATH, to which the release is pushed))" $(if $(KEY),--key $(KEY)) $(if $(UNSIGNED),--unsigned)

reference: install ## docs/reference/txlogcluster.md and cli.md, and the diagrams of docs/design/protocol.md, from the code
	@$(BIN)/python tools/reference.py && $(BIN)/python tools/diagrams.py

$(VENV)/.installed-docs: $(VENV)/.uv requirements-docs.lock
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-docs.lock
	touch $@

docs: $(VENV)/.installed-docs ## build/site from docs/, with navigation and search; a dead link, or a page outside the navigation, fails
	$(BIN)/sphinx-build -q -W --keep-going -c tools/docs_site -d build/doctrees docs build/site
	@echo "open build/site/index.html"

docs-run: $(VENV)/.installed ## the commands of the quickstart and the how-to pages, run and compared with what the pages show (ONLY=how-to/...)
	@$(BIN)/python -m e2e.scenarios.documented_pages $(ONLY)

console/node_modules/.installed: console/package-lock.json
	cd console && npm ci --silent --ignore-scripts
	touch $@

console: install console/node_modules/.installed ## the page at /console/ of every master (needs Node.js 20 and npm; without it masters run without the page)
	@mkdir -p build/console console/src/generated
	@$(BIN)/python -m txlog.server.admin.openapi > build/console/openapi.json
	@cd console && npm run --silent types && npm run --silent check && npm test --silent && npm run --silent build

console-test: console install-dev ## the console in a real Chromium, through a split and its rejoin; pictures go to docs/figures/console
	@$(BIN)/python -m e2e.scenarios.console_check --chromium "$$(tools/chromium)"

test-clients: install-dev ## unchanged RDF4J and SPARQL clients against both data centres of a local cluster (URL=http://... for one that runs; ALLOW_SKIPPED=1 where some are not here)
	@$(BIN)/python -m e2e.conformance.foreign_clients $(if $(URL),--url $(URL)) $(if $(filter 1,$(ALLOW_SKIPPED)),--allow-skipped)

SEEDS ?= 1000
START ?= 0
simulate: native ## the masters under simulated faults: SEEDS=n [START=n, or random for seeds that nobody has tried] (ONLY=synchronous: one profile)
	@$(BIN)/python -m txlog_simulation --seeds $(SEEDS) --start $(START) $(if $(ONLY),--profile $(ONLY))

trace-digest: SEEDS = 2000
trace-digest: native ## one digest of every event of SEEDS=2000 simulated runs; a change that keeps the behaviour keeps it
	@$(BIN)/python -m txlog_simulation --digest --seeds $(SEEDS) --start $(START)

mutants: native ## take each safeguard out of the code; the simulator must notice (ONLY=synchronous: those of this name)
	@$(BIN)/python -m txlog_simulation.mutants $(if $(ONLY),--only $(ONLY))

model: install-dev ## the TLA+ model of the protocol: every state of small sizes, then its mutants (ONLY=rejoin; DEEP=1: hours)
	@$(BIN)/python -m e2e.model.check $(if $(ONLY),--only $(ONLY)) $(if $(DEEP),--deep)

model-synchronous: install-dev ## the model of synchronous transactions: random runs, then its mutants (ONLY=not_jointly; RUNS=1000)
	@$(BIN)/python -m e2e.model.synchronous.count $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--count $(RUNS))

model-crosslog: install-dev ## the model of transactions and cuts over several logs: random runs, then its mutants (ONLY=no_presume; RUNS=1000)
	@$(BIN)/python -m e2e.model.crosslog.count $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--count $(RUNS))

model-certification: install-dev ## the model of certification: histories made by hand, random runs, then its mutants (ONLY=risen_ok; RUNS=1000)
	@$(BIN)/python -m e2e.model.certification.count $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--count $(RUNS))

up: install ## run examples/two-data-centres on this machine
	@$(BIN)/txlog up -f examples/two-data-centres --detach

down: install ## stop it
	@$(BIN)/txlog down

clean: ## remove everything that was installed or made
	rm -rf $(VENV) console/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Measuring. The whole command's time counts from here, installation included.
demo: export TXLOG_STARTED := $(shell date +%s)
OLD_RELEASE := $(VENV)/geonames-old

$(OLD_RELEASE)/.installed: $(VENV)/.uv requirements-demo.lock
	rm -rf $(OLD_RELEASE)
	$(UV) pip install --quiet --python $(BIN)/python --target $(OLD_RELEASE) --no-deps --require-hashes -r requirements-demo.lock
	touch $@

demo: $(VENV)/.installed $(OLD_RELEASE)/.installed ## two data centres take in real data and its changes (KEEP=1: leave them running)
	$(BIN)/python -m e2e.scenarios.demo --old-release $(OLD_RELEASE) $(if $(KEEP),--keep)

demo-split: export TXLOG_STARTED := $(shell date +%s)
demo-split: $(VENV)/.installed $(OLD_RELEASE)/.installed ## two data centres lose each other, go on, and are one again (STRATEGY=Simple; SYNCHRONOUS=1: with a graph that needs a quorum)
	$(BIN)/python -m e2e.scenarios.split_demo $(if $(STRATEGY),--strategy $(STRATEGY)) $(if $(SYNCHRONOUS),--synchronous)

bench: native ## how fast it is (ONLY=c1,c64,b100,append,catchup,batch,idle; by name only: sites,restart,keys,disturbed,batch52,backlog,breakeven,capture,synchronous,reads; ROUNDS=3 APPENDS=500 ENTRIES=1000000 BATCH=1000000 OPERATIONS=20000000 SIZES=25000,... STORE_QUADS=10000000 PROFILE=1)
	$(BIN)/python -m bench.run $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(APPENDS),--appends $(APPENDS)) $(if $(ENTRIES),--entries $(ENTRIES)) $(if $(BATCH),--batch $(BATCH)) $(if $(OPERATIONS),--operations $(OPERATIONS)) $(if $(SIZES),--sizes $(SIZES)) $(if $(STORE_QUADS),--store-quads $(STORE_QUADS)) $(if $(PROFILE),--profile build/profile)

synchronous: native ## graphs with a quorum through splits, kill -9 and a lost disk; every answer is compared with the log (SECONDS=600 SEED=n)
	@$(BIN)/python -m e2e.scenarios.synchronous $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

undecided: native $(SPARK_CLASSES) ## a backup with forty undecided transactions; trims, a restart and a lost disk while some are always undecided (SECONDS=120)
	@$(BIN)/python -m e2e.scenarios.undecided $(if $(SECONDS),--seconds $(SECONDS))

bench-door: native ## what the front door costs: updates, uploads, proxied queries, a large result (ONLY=insert10,upload,query,statements,stream ROUNDS=3)
	$(BIN)/python -m bench.http_api $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-peers: native ## beside etcd, MariaDB Galera and NATS JetStream, interleaved (ROUNDS=5 SYSTEMS=txlog,etcd CASES=c1,c64)
	$(BIN)/python -m bench.competitors.programs || $(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-peers.lock
	$(BIN)/python -m bench.competitors.run $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SYSTEMS),--systems $(SYSTEMS)) $(if $(CASES),--cases $(CASES))

bench-guard: native ## does a transaction cost the masters more processor than bench/guard.json allows (NOTE=1 writes it anew)
	@$(BIN)/python -m bench.guard $(if $(NOTE),--note)

bench-scale: native ## what a transaction costs against masters, log, queue, entries to catch up, payload, latency, data centres, workers (ONLY=masters,log,...)
	@$(BIN)/python -m bench.scale $(if $(ONLY),--only $(ONLY))

plots: install-dev ## pictures of what bench-peers and bench-scale found, for docs/performance.md
	@$(BIN)/python -m bench.plots

rejoin: $(VENV)/.installed ## two halves of a large database are one again, by phase (STRATEGY=Simple QUADS=500000 TRANSACTIONS=10000)
	$(BIN)/python -m e2e.scenarios.rejoin $(if $(STRATEGY),--strategy $(STRATEGY)) $(if $(QUADS),--quads $(QUADS)) $(if $(TRANSACTIONS),--transactions $(TRANSACTIONS))

rejoin-under-load: native ## a master is stopped and joins again while others are written to at the highest rate
	$(BIN)/python -m e2e.scenarios.rejoin_under_load

longevity: native ## 5,000 views and 250 lost disks: what a transaction and a view change cost at the beginning and the end
	$(BIN)/python -m e2e.scenarios.longevity

pitr: $(VENV)/.installed ## a store restored to random moments of a real log, by time, position and transaction (TARGETS=200 SEED=n)
	@$(BIN)/python -m e2e.scenarios.pitr $(if $(TARGETS),--targets $(TARGETS)) $(if $(SEED),--seed $(SEED))

archive-faults: $(VENV)/.installed ## archives in S3 and in a folder, while stores, archivers and links fail (AWAY=300 seconds, SEED=n)
	@$(BIN)/python -m e2e.scenarios.archive_faults $(if $(AWAY),--away $(AWAY)) $(if $(SEED),--seed $(SEED))

rehearse: native ## a recovery rehearsed beside a running cluster, by hand, by schedule, and with twelve planted faults
	@$(BIN)/python -m e2e.scenarios.rehearse

bulk: native ## a file goes into every worker beside the log, while clients write and read (QUADS=1000000)
	@$(BIN)/python -m e2e.scenarios.bulk_load $(if $(QUADS),--quads $(QUADS))

bulk-faults: native ## kill -9 of everything at every step of a bulk load, full disks, damaged parts, splits: in everywhere or nowhere (ONLY="landing: store,twice" SEED=n)
	@$(BIN)/python -m e2e.scenarios.bulk_faults $(if $(ONLY),--only "$(ONLY)") $(if $(SEED),--seed $(SEED))

lost-everything: native ## kill -9 of two data centres under load, all disks deleted: a new cluster from the archive alone (SECONDS=10)
	$(BIN)/python -m e2e.scenarios.total_loss $(if $(SECONDS),--seconds $(SECONDS))

recovery-crashes: $(VENV)/.installed ## kill -9 of everything at every step of a split's recovery (STRATEGY=Simple ONLY=isolated,worker,...)
	$(BIN)/python -m e2e.scenarios.recovery_crashes $(if $(STRATEGY),--strategy $(STRATEGY)) $(if $(ONLY),--only "$(ONLY)")

rolling: native ## every master restarted in turn, then killed, under load (ROUNDS=1)
	$(BIN)/python -m e2e.scenarios.rolling_restart $(if $(ROUNDS),--rounds $(ROUNDS))

faults: native ## kill -9, slow and cut links, lost disks under load (ONLY=kills,... KILLS=20)
	$(BIN)/python -m e2e.scenarios.process_faults $(if $(ONLY),--only $(ONLY)) $(if $(KILLS),--kills $(KILLS))

soak: native ## faults and splits for MINUTES=30 under load, all strategies; nothing may be lost, doubled or foreign (MASTERS=1|3|5; SYNCHRONOUS=1: a third of the graphs need a quorum)
	@$(BIN)/python -m e2e.soak --minutes $(or $(MINUTES),30) --masters $(or $(MASTERS),3) $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) $(if $(SYNCHRONOUS),--synchronous)

fuzz-api: native ## requests made from the API's own document, against a master (EXAMPLES=100 for each operation)
	EXAMPLES=$(or $(EXAMPLES),100) $(BIN)/pytest -p no:cacheprovider -s node/tests/server/test_api_by_its_document.py

determinism: native ## what a master accepts does the same in all stores: the W3C's updates and random ones (UPDATES=1000 SEED=n ENGINES=mixed|plain|fuseki|rdf4j, mixed with RDF4J=1: in an RDF4J server, too; CAPTURE=1: change sets against what a store held before and after)
	@$(BIN)/python -m e2e.conformance.determinism.run $(if $(ENGINES),--engines $(ENGINES)) $(if $(RDF4J),--rdf4j) $(if $(CAPTURE),--capture) $(if $(UPDATES),--updates $(UPDATES)) $(if $(SEED),--seed $(SEED))

w3c: install-dev ## the W3C's tests of SPARQL through a master and at its engine; docs/w3c.md lists what differs (ONLY=words of a name)
	@$(BIN)/python -m e2e.conformance.w3c.run $(if $(ONLY),--only "$(ONLY)")

roundtrip: install-dev ## odd literals, IRIs and labels through every format and engine: what is written is what is read, or the answer names the form (ENGINES=oxigraph,fuseki,rdf4j,virtuoso,mixed)
	@$(BIN)/python -m e2e.conformance.roundtrip.run $(if $(ENGINES),--engines $(ENGINES))

rdf4j-differences: install-dev ## the same requests to a master and to a real RDF4J server; docs/rdf4j-differences.md lists what differs
	@$(BIN)/python -m e2e.conformance.rdf4j.differences

rdf4j-suite: native ## RDF4J's own test suites against an RDF4J server and against masters; docs/reference/rdf4j-suite.md lists what may fail (ONLY=group or words of a name, ENGINE=oxigraph|rdf4j, URL=http://.../rdf4j-server)
	@$(BIN)/python -m e2e.conformance.rdf4j.suite_run $(if $(ONLY),--only "$(ONLY)") $(if $(ENGINE),--engine $(ENGINE)) $(if $(URL),--url $(URL))

fuzz: install-dev ## what reads bytes from outside, given bytes that nobody would send (INPUTS=20000 SEED=n JOBS=2)
	@$(BIN)/python -m e2e.fuzz.run $(if $(JOBS),--jobs $(JOBS)) $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SEED),--seed $(SEED))

divergence: $(VENV)/.installed ## a difference planted in one graph of one store: found, named, repaired (QUADS=1000000 GRAPHS=20)
	@$(BIN)/python -m e2e.scenarios.divergence $(if $(QUADS),--quads $(QUADS)) $(if $(GRAPHS),--graphs $(GRAPHS))

backup-large: $(VENV)/.installed ## a large backup: time, size, restore, and its refusals when it is spoilt (QUADS=1000000)
	$(BIN)/python -m e2e.scenarios.backup_large $(if $(QUADS),--quads $(QUADS))

# Real Kubernetes clusters on this machine; they need root.
CLUSTER := $(BIN)/python -m e2e.cluster

$(VENV)/.go: install-dev
	@$(BIN)/python -m e2e.cluster.go_compiler 2>/dev/null || $(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-peers.lock
	@touch $@

cluster: $(VENV)/.go ## two data centres, each a whole Kubernetes (the first time its programs are built: 10 minutes); as root
	@$(CLUSTER) up || { $(CLUSTER) down; exit 1; }

cluster-down: $(VENV)/.go ## end them; nothing is left
	@$(CLUSTER) down

kind: ## both data centres in a kind cluster, for people who have kind, docker, kubectl and helm (tools/kind down ends it)
	@tools/kind up

image: $(VENV)/.go ## the image, built from the Dockerfile without a registry; as root
	@$(CLUSTER) needs && $(BIN)/python -m e2e.cluster.image_build

e2e: $(VENV)/.go ## TxLog on real Kubernetes: all tiers; two clusters, the image, faults (ONLY=synchronous: one file of e2e/kubernetes); as root
	@trap '$(CLUSTER) down' EXIT; $(BIN)/python -m e2e.kubernetes.run $(ONLY)
