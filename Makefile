# Everything runs in a virtual environment inside the tree; the package registry is all the network it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-oldest test-pythons lint docs dist sbom stress audit lock bench results clean

demo: $(VENV)/installed
	$(BIN)/mhpatchcore demo demo

# one process more than this machine of two cores has: many tests wait for servers and browsers
SIDE_BY_SIDE = -n 3 --dist loadfile

test: $(VENV)/installed-dev
	scripts/install-debian-packages.sh
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow"

test-all: $(VENV)/installed-dev
	$(BIN)/pytest $(SIDE_BY_SIDE)

# with the lowest versions that pyproject.toml allows, and with every Python that is found here
test-oldest:
	PYTHON=$(PYTHON) scripts/test-oldest.sh

test-pythons:
	scripts/test-pythons.sh

# make stress MINUTES=10: mutated files by the ten thousand, faults at every write, receivers that fail
stress: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.stress $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--first $(SEED))

# known vulnerabilities of what is installed; pins for development
audit:
	PYTHON=$(PYTHON) scripts/audit.sh

lock:
	PYTHON=$(PYTHON) scripts/lock.sh

lint: $(VENV)/installed-dev
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/mypy

# the documentation as a site, with its generated reference: build/docs/index.html
docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# sdist and wheel in dist/, checked, installed outside of the tree and tried; how large an installation is
dist:
	PYTHON=$(PYTHON) scripts/dist.sh

# what is installed with the package, as CycloneDX: dist/sbom.json
sbom:
	PYTHON=$(PYTHON) scripts/sbom.sh

# make bench DATA=/folder/of/normal/images
bench: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks $(DATA)

# make results DATA=/folder/of/categories BACKBONE=/file.onnx   (LADDER=casting: the ladder; without DATA: only the page)
results: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.results $(DATA) $(if $(BACKBONE),--backbone $(BACKBONE)) $(if $(WEIGHTS),--weights $(WEIGHTS)) \
		$(if $(LADDER),--ladder $(LADDER)) $(if $(SIZES),--sizes $(SIZES)) $(if $(UPDATE),--update)

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

# the pinned versions: pip would look for half an hour for others that go together
$(VENV)/installed-dev: $(VENV)/installed requirements-dev.lock
	scripts/constraints.sh > $(VENV)/constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]' -c $(VENV)/constraints.txt
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-* demo build dist src/*.egg-info
