# What is done with the client for TypeScript. Included by the Makefile of the repository.
.PHONY: sdk-typescript-schema check-sdk-typescript test-sdk-typescript

TYPESCRIPT_MODULES = sdk/typescript/node_modules/.package-lock.json

# What is installed is newer than the lock file, or is installed again.
$(TYPESCRIPT_MODULES): sdk/typescript/package-lock.json
	cd sdk/typescript && npm ci --ignore-scripts --no-audit --no-fund
	touch $@

sdk-typescript-schema: $(TYPESCRIPT_MODULES) ## Writes the types of the TypeScript client from the OpenAPI document
	cd sdk/typescript && npm run --silent generate

check-sdk-typescript: $(TYPESCRIPT_MODULES) ## Types, rules and the generated schema of the TypeScript client
	cd sdk/typescript && npm run --silent generate -- --check && npm run --silent build && npm run --silent check

# Without Chromium it says so, and tries everything else.
test-sdk-typescript: check-sdk-typescript programs ## Tests the TypeScript client against a real server, in Node and in a browser (ASH_TEST_BIN=d)
	sdk/typescript/scripts/chromium.sh
	@programs="$${ASH_TEST_BIN:-$$($(TARGET_DIR))/debug}"; \
	cd sdk/typescript && ASH_TEST_BIN="$$programs" npm test --silent -- $(WORDS)
