// What the compiler does not check: no file does too much, nothing is of the type that says nothing, every public thing
// says what it is.
import { readFileSync, readdirSync } from "node:fs";
import ts from "typescript";

const MAX_LINES = 300;
const root = new URL("..", import.meta.url);
const problems = [];
const files = ["src", "test", "scripts"].flatMap((directory) =>
  readdirSync(new URL(directory, root), { recursive: true })
    .map((name) => `${directory}/${name}`)
    .filter((name) => /\.(ts|mjs)$/.test(name) && !name.startsWith("test/build") && name !== "src/schema.ts"),
);
for (const file of files) {
  const text = readFileSync(new URL(file, root), "utf8");
  const lines = text.split("\n").length - 1;
  if (lines > MAX_LINES) problems.push(`${file} has ${lines} lines`);
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const look = (node) => {
    const at = () => `${file}:${source.getLineAndCharacterOfPosition(node.getStart()).line + 1}`;
    if (node.kind === ts.SyntaxKind.AnyKeyword) problems.push(`${at()}: \`any\` says nothing`);
    if (file.startsWith("src/") && isPublic(node) && ts.getJSDocCommentsAndTags(node).length === 0) {
      problems.push(`${at()}: ${node.name?.getText() ?? "this"} is public and says not what it is`);
    }
    ts.forEachChild(node, look);
  };
  look(source);
}

function isPublic(node) {
  const modifiers = ts.canHaveModifiers(node) ? (ts.getModifiers(node) ?? []) : [];
  const has = (kind) => modifiers.some((modifier) => modifier.kind === kind);
  if (ts.isMethodDeclaration(node)) {
    return ts.isClassDeclaration(node.parent) && !ts.isPrivateIdentifier(node.name) && !has(ts.SyntaxKind.PrivateKeyword);
  }
  const declares = ts.isClassDeclaration(node) || ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node) || ts.isFunctionDeclaration(node);
  return declares && has(ts.SyntaxKind.ExportKeyword);
}

for (const problem of problems) console.error(problem);
process.exit(problems.length === 0 ? 0 : 1);
