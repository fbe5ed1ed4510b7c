# Two commands do everything on a fresh machine: `make demo` and `make test`.
#
# Needed beforehand: Python 3.11 with venv, make, and a C compiler (gcc or clang).

PYTHON ?= python3
# The number of processes that run tests side by side; 0 runs them one after the other. There are more than
# processors, because many tests wait, and at most 16, because each takes memory and ports. A file's tests
# stay in one process, since they share racks. Files keep their order: tests/slow.txt has those that come first.
PROCESSES ?= $(shell n=$$(nproc); echo $$((n < 8 ? 2 * n : 16)))
VENV := .venv
LIBRARIES := .venv-libs
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Tests start hundreds of Python processes: all of them read what one has compiled.
export PYTHONDONTWRITEBYTECODE =
C_SOURCES = $(shell find innet benchmarks tests -name '*.[ch]' -o -name '*.cpp')

.PHONY: help demo test pytest test-fast matrix newest soak lint format docs proto artifacts requirements system libraries clean

help:
	@echo 'make demo       set up, then train a rack through a P4 switch; no root needed'
	@echo 'make test       set up, then lint, type-check and test everything'
	@echo 'make test-fast  lint without mypy, and short tests that start no process; under a minute, no root needed'
	@echo 'make matrix     install innet with several versions of Python, protobuf and PyTorch, and sum'
	@echo 'make newest     install innet beside the newest PyTorch and the libraries on top of it, gigabytes; run examples'
	@echo 'make soak       hours of it: 1e8 elements over links with faults, twenty kills, a million packets'
	@echo 'make lint       ruff, mypy, import-linter and clang-format only'
	@echo 'make format     let ruff and clang-format format the sources'
	@echo 'make docs       set up, then build the site into site/; open site/index.html'
	@echo 'make proto      remake the gRPC code from the .proto files'
	@echo 'make artifacts  recompile the P4 programs (p4c-bm2-ss has to be on the PATH)'
	@echo 'make requirements  write requirements/*.txt: the packages of deployments, pinned, with hashes'
	@echo 'make libraries  install what the examples for other libraries need'
	@echo 'make clean      remove what set-up and tests have made'

demo: $(VENV)/.demo
	$(BIN)/innet demo

# apt installs packages while pip does. mypy takes one processor for a minute: meanwhile, the libraries are
# installed and the tests begin.
test:
	$(MAKE) --jobs 2 $(VENV)/.dev system
	$(MAKE) --jobs 2 lint pytest

pytest: $(VENV)/.dev libraries
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder

test-fast: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal @tests/fast.txt

# A download of PyTorch takes gigabytes: name versions as in `make matrix TORCHES="2.13 2.15"`. A name on the
# PATH may be a version manager's, which has not chosen a Python for it: only those that run count.
PYTHONS ?= $(foreach minor,11 12 13 14,$(shell python3.$(minor) -c 'import sys; print(sys.executable)' 2> /dev/null))
TORCHES ?=

# On a busy machine, gigabytes of small files take longer than any other command of a test.
PATIENT_PYTEST = INNET_INSTALL_WITHIN=7200 $(BIN)/python -m pytest --verbose --timeout 7200

matrix: $(VENV)/.dev
	INNET_PYTHONS="$(PYTHONS)" INNET_TORCHES="$(TORCHES)" $(PATIENT_PYTEST) tests/system/test_versions.py

newest: $(VENV)/.dev
	INNET_NEWEST=1 $(PATIENT_PYTEST) tests/system/test_installation.py tests/system/test_examples.py \
		tests/system/test_libraries.py

soak: $(VENV)/.dev
	INNET_SOAK_ELEMENTS=100000000 INNET_FUZZ_PACKETS=1000000 INNET_FUZZ_MESSAGES=1000000 \
		INNET_FUZZ_STATES=2000000 INNET_FUZZ_TOPOLOGIES=200000 INNET_FUZZ_PROGRAMS=all \
		INNET_FUZZ_NAMES=20 INNET_FUZZ_SIZES=20000 INNET_WALKS=200 INNET_RESTART_WALKS=1000 \
		INNET_KILLS=20 INNET_KILL_WITHIN=1 INNET_PAUSE=60 INNET_REFUSAL=60 INNET_PYTORCH_TESTS=all INNET_REPLICA_KILLS=20 \
		$(BIN)/python -m pytest --capture=no --verbose tests/system/test_never_a_wrong_sum.py \
		tests/system/test_shared_memory.py \
		tests/system/test_overwriting_while_parts_die.py tests/system/test_kill.py tests/system/test_pauses.py tests/system/test_refusals.py \
		tests/system/test_fuzz_agent.py tests/controller/test_fuzz_controller.py tests/controller/test_fuzz_state.py \
		tests/emulation/test_fuzz_topology.py tests/switch/test_switch_fuzz.py tests/switch/test_switch_names.py \
		tests/switch/test_switch_sizes.py tests/controller/test_restart.py tests/controller/test_restart_walk.py \
		tests/p4/test_slot_conformance.py tests/p4/test_tree_conformance.py tests/torch/test_pytorch_tests.py \
		tests/torch/test_torchft.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(C_SOURCES)

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_SOURCES)

# The variable silences a notice of the theme about the next MkDocs.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Some tests build network namespaces: they need root and a few system packages. Without them the tests
# are skipped, and pytest's summary says why.
system:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		for tool in ip:iproute2 ethtool:ethtool ping:iputils-ping mn:mininet tshark:tshark \
				srun:slurm-client slurmctld:slurmctld slurmd:slurmd \
				systemd-analyze:systemd systemd-nspawn:systemd-container promtool:prometheus \
				chromium:chromium chromedriver:chromium-driver; do \
			command -v "$${tool%%:*}" > /dev/null || missing="$$missing $${tool##*:}"; \
		done; \
		if [ -n "$$missing" ]; then \
			echo "installing$$missing"; \
			apt-get update -qq; \
			for package in $$missing; do \
				DEBIAN_FRONTEND=noninteractive \
					apt-get install -y -qq --no-install-recommends $$package > /dev/null \
					|| echo "could not install $$package: what needs it is skipped"; \
			done; \
		fi; \
	fi

# The libraries that some examples use. Their environment sees the packages of $(VENV), so that PyTorch is
# installed once. Without a library, its examples are skipped, and pytest's summary says why.
libraries: $(VENV)/.dev
	@if [ ! $(LIBRARIES)/.done -nt tests/libraries.txt ]; then \
		$(PYTHON) -m venv $(LIBRARIES); \
		$(BIN)/python tests/support/shared_packages.py $(LIBRARIES); \
		for library in $$(grep -v '^#' tests/libraries.txt); do \
			timeout 600 $(LIBRARIES)/bin/python -m pip install --quiet --disable-pip-version-check \
				--retries 1 --timeout 15 --no-build-isolation "$$library" \
				|| { missing=1; echo "could not install $$library: what needs it is skipped"; }; \
		done; \
		[ "$$missing" ] || touch $(LIBRARIES)/.done; \
	fi

# The generated code has to import with protobuf 3.20 and all that came later. That of an old generator
# does. The generator itself needs an old protobuf, so it has an environment of its own.
PROTOC = .venv-proto/bin/python -m grpc_tools.protoc
P4RUNTIME = innet/p4runtime

proto: .venv-proto/.done
	$(PROTOC) -I. --python_out=. --pyi_out=. --grpc_python_out=. innet/rpc/innet.proto
	$(PROTOC) -I. --python_out=. --pyi_out=. innet/controller/switches/targets/pipeline.proto
	$(PROTOC) -I$(P4RUNTIME)/protos --include_imports --descriptor_set_out=$(P4RUNTIME)/p4runtime.binpb \
		p4/v1/p4runtime.proto google/rpc/code.proto
	$(PROTOC) -I$(P4RUNTIME)=$(P4RUNTIME)/protos/p4/v1 -I$(P4RUNTIME)/protos --grpc_python_out=. \
		$(P4RUNTIME)/protos/p4/v1/p4runtime.proto

artifacts: $(VENV)/.demo
	$(BIN)/innet p4 compile

# What deployments install besides innet: the extras of services, and of a training's image. Versions that are
# in the files already stay, unless UPGRADE=--upgrade. The build backend is in, so that nothing else is fetched.
EXTRAS_services = metrics
EXTRAS_training = demo metrics private

requirements: .venv-lock/.done
	@for each in 'services $(EXTRAS_services)' 'training $(EXTRAS_training)'; do \
		set -- $$each; file=requirements/$$1.txt; shift; \
		echo 'setuptools>=77' | .venv-lock/bin/uv pip compile - pyproject.toml \
			$$(printf -- '--extra %s ' "$$@") --universal --python-version 3.11 --generate-hashes \
			--no-annotate --custom-compile-command 'make requirements' --quiet $(UPGRADE) --output-file $$file \
			|| exit 1; \
	done

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.demo $(VENV)/.docs

$(VENV)/.docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[docs]'
	@touch $@

.venv-proto/.done: Makefile
	$(PYTHON) -m venv .venv-proto
	.venv-proto/bin/python -m pip install --quiet 'grpcio-tools==1.49.1' 'setuptools<81'
	@touch $@

.venv-lock/.done: Makefile
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet 'uv==0.13.9'
	@touch $@

clean:
	rm -rf $(VENV) .venv-proto .venv-lock $(LIBRARIES) .pytest_cache .mypy_cache .ruff_cache .hypothesis site *.egg-info
