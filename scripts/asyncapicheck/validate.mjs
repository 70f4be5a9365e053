// Validates the AsyncAPI documents named on the command line with the specification's own parser. It needs no network. It
// prints what the parser finds, and ends with status 1 when that is an error or a warning.
import { readFile } from 'node:fs/promises';
import { Parser } from '@asyncapi/parser';

const severities = ['error', 'warning', 'information', 'hint'];
const files = process.argv.slice(2);
let failed = files.length === 0;
for (const file of files) {
  const { document, diagnostics } = await new Parser().parse(await readFile(file, 'utf8'));
  for (const d of diagnostics) {
    const { line, character } = d.range.start;
    console.log(`${file}:${line + 1}:${character + 1}: ${severities[d.severity]}: ${d.message} (${d.code})`);
    failed ||= d.severity <= 1;
  }
  failed ||= document === undefined;
}
process.exitCode = failed ? 1 : 0;
