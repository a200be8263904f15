/** The examples of the README. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The directory of the package. */
export const root = fileURLToPath(new URL("../../..", import.meta.url));

/** The blocks of a language, in order. */
export function blocks(language: string): string[] {
  const text = readFileSync(join(root, "README.md"), "utf8");
  return Array.from(text.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, "gm")), (match) => match[1] ?? "");
}
