// Writes src/schema.ts from the server's OpenAPI document, or with --check says whether it is as it would be written.
//
// Errors always have one shape and are left out; so are the documents about the API itself.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const SOURCE = new URL("../../../docs/openapi.json", import.meta.url);
const TARGET = new URL("../src/schema.ts", import.meta.url);
const HEAD = "// Made from docs/openapi.json by `make sdk`. Do not edit.\n/* eslint-disable */\n\n";

const document = JSON.parse(await readFile(SOURCE, "utf8"));
for (const operations of Object.values(document.paths)) {
  for (const operation of Object.values(operations)) {
    for (const status of Object.keys(operation.responses ?? {})) {
      if (!status.startsWith("2")) delete operation.responses[status];
    }
  }
}
const made = HEAD + astToString(await openapiTS(document, { rootTypes: false }));
if (process.argv.includes("--check")) {
  const kept = await readFile(TARGET, "utf8").catch(() => "");
  if (kept !== made) {
    console.error("sdk/typescript/src/schema.ts is not what docs/openapi.json says: run `make sdk` and commit it");
    process.exit(1);
  }
} else {
  await writeFile(TARGET, made);
}
