# What is done with the client for Python. Included by the Makefile of the repository.
.PHONY: sdk-python-schema check-sdk-python test-sdk-python

PYTHON_DIR = $(abspath target)/sdk-python
PYTHON_VENV = $(PYTHON_DIR)/venv

sdk-python-schema: ## Writes the types of the Python client from the OpenAPI document
	python3 sdk/python/generate.py

$(PYTHON_VENV)/ready: sdk/python/requirements-test.txt
	python3 -m venv --clear $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

check-sdk-python: $(PYTHON_VENV)/ready ## Types, lints and the generated schema of the Python client
	python3 sdk/python/generate.py --check
	cd sdk/python && $(PYTHON_VENV)/bin/ruff check . ../compat && $(PYTHON_VENV)/bin/ruff format --check . ../compat && $(PYTHON_VENV)/bin/mypy

# ASH_TEST_BIN names a directory with the executables; without it they are built.
test-sdk-python: check-sdk-python programs ## Tests the Python client against a real server (ASH_TEST_BIN=d: with the programs in d)
	@programs="$${ASH_TEST_BIN:-$$($(TARGET_DIR))/debug}"; \
	cd sdk/python && ASH_TEST_BIN="$$programs" PYTHONDONTWRITEBYTECODE=1 $(PYTHON_VENV)/bin/python -m pytest -q $(TESTS)

COMPAT_VENV = $(PYTHON_DIR)/original

$(COMPAT_VENV)/ready: sdk/compat/python/requirements.txt
	python3 -m venv --clear $(COMPAT_VENV)
	$(COMPAT_VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

.PHONY: compat compat-python compat-typescript
compat: compat-python compat-typescript ## The original's clients against this server (UPDATE=1: writes what came of it)
	python3 sdk/compat/page.py $(if $(UPDATE),,--check)

compat-python: $(COMPAT_VENV)/ready programs
	@programs="$${ASH_TEST_BIN:-$$($(TARGET_DIR))/debug}"; \
	ASH_TEST_BIN="$$programs" PYTHONDONTWRITEBYTECODE=1 python3 sdk/compat/python/run.py $(COMPAT_VENV)/bin/python $(if $(UPDATE),--update)

compat-typescript: programs
	@programs="$${ASH_TEST_BIN:-$$($(TARGET_DIR))/debug}"; \
	ASH_TEST_BIN="$$programs" PYTHONDONTWRITEBYTECODE=1 python3 sdk/compat/typescript/run.py $(if $(UPDATE),--update)
