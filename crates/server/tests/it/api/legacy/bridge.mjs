// A bridge program as the original's protocol wants it, for tests: it listens, says `R`, and answers queries by
// what their last line says. It remembers what it was asked as long as it lives.
import { existsSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';

const { ASH_BRIDGE_SOCKET, ASH_WORKSPACE_DIR, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY } = process.env;
const remembered = [];
let interrupted = false;
// What it found when it was started.
const found = ['CLAUDE.md', '.mcp.json'].map((name) => {
  const path = join(ASH_WORKSPACE_DIR, name);
  return existsSync(path) ? readFileSync(path, 'utf8') : null;
});

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const words = (prompt) =>
  typeof prompt === 'string'
    ? prompt
    : prompt.filter((block) => block.type === 'text').map((block) => block.text).join('\n');

async function askModel(query, text) {
  const answer = await fetch(`${ANTHROPIC_BASE_URL}/v1/messages`, {
    method: 'POST',
    headers: {
      'anthropic-version': '2023-06-01',
      'content-type': 'application/json',
      'x-api-key': ANTHROPIC_API_KEY,
    },
    body: JSON.stringify({
      model: query.model ?? 'claude-sonnet-4-5',
      max_tokens: 100,
      messages: [{ role: 'user', content: text }],
    }),
  });
  const body = await answer.json();
  return body.content.map((block) => block.text).join('');
}

async function run(connection, query) {
  const send = (event) => connection.write(`${JSON.stringify(event)}\n`);
  const session_id = query.sessionId;
  const message = (data) => send({ ev: 'message', data: { ...data, session_id } });
  const say = (text) =>
    message({ type: 'assistant', message: { role: 'assistant', content: [{ type: 'text', text }] } });
  const result = (text, more = {}) =>
    message({
      type: 'result',
      subtype: 'success',
      is_error: false,
      num_turns: 1,
      result: text,
      usage: { input_tokens: 10, output_tokens: 5 },
      // Each query is a program of its own, and tells its own cost.
      total_cost_usd: 0.25,
      ...more,
    });
  const done = () => send({ ev: 'done', sessionId: session_id });
  const text = words(query.prompt);
  const [command, ...rest] = text.split('\n').at(-1).split(' ');
  remembered.push(text);
  interrupted = false;
  switch (command) {
    case '/options':
      say(JSON.stringify({ ...query, prompt: undefined }));
      result('told');
      return done();
    case '/env':
      say(JSON.stringify(process.env));
      result('told');
      return done();
    case '/files':
      say(JSON.stringify({ argv: process.argv, cwd: process.cwd() }));
      result('told');
      return done();
    case '/found':
      say(JSON.stringify(found));
      result('told');
      return done();
    case '/memory':
      say(remembered.join(' | '));
      result('told');
      return done();
    case '/model':
      say(await askModel(query, `${rest.join(' ')}\n/say from the model`));
      result('asked');
      return done();
    case '/pieces':
      if (query.includePartialMessages) {
        const event = (data) => message({ type: 'stream_event', event: data });
        event({ type: 'message_start', message: { role: 'assistant' } });
        for (const piece of ['one ', 'two']) {
          event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: piece } });
        }
        event({ type: 'message_stop' });
      }
      say('one two');
      result('one two');
      return done();
    case '/tool':
      message({ type: 'system', subtype: 'init', tools: ['Bash'] });
      message({
        type: 'assistant',
        message: { role: 'assistant', content: [{ type: 'tool_use', id: 't1', name: 'Bash', input: { command: 'ls' } }] },
      });
      message({
        type: 'user',
        message: { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: 'a.txt' }] },
      });
      say('There is a.txt.');
      result('There is a.txt.', { num_turns: 2 });
      return done();
    case '/wait':
      say('waiting');
      while (!existsSync(join(ASH_WORKSPACE_DIR, 'go')) && !interrupted) await pause(10);
      if (!interrupted) {
        say('went on');
        result('went on');
      }
      return done();
    case '/deaf':
      say('deaf');
      return;
    case '/error':
      send({ ev: 'error', error: 'the agent is not well' });
      return done();
    case '/error-only':
      send({ ev: 'error', error: 'and that is all' });
      return;
    case '/failed':
      result('it did not work', { subtype: 'error_during_execution', is_error: true });
      return done();
    case '/twice':
      say('once');
      result('once');
      done();
      return done();
    case '/late':
      say('early');
      result('early');
      done();
      // It comes after the next query, before its answer.
      connection.prependOnceListener('data', done);
      return;
    case '/garbage':
      connection.write('this is no JSON\n\n{"ev":"unknown_one"}\n{"ev":\n[1]\n{"ev":"message"}\n');
      send({ ev: 'log', level: 'info', text: 'a line of a log', ts: 'now' });
      say('after the garbage');
      result('after the garbage');
      return done();
    case '/print':
      process.stdout.write('on its output\n\n');
      process.stderr.write('on its error\r\nand without an end');
      send({ ev: 'log', level: 'stderr', text: 'in its log', ts: 'now' });
      say('printed');
      result('printed');
      return done();
    case '/die':
      say('my last words');
      process.stderr.write('something broke here\n');
      setTimeout(() => process.exit(3), 50);
      return;
    case '/hang-up':
      say('good bye');
      connection.end();
      return;
    case '/giant': {
      connection.write('{"ev":"message","data":{"type":"assistant","x":"');
      const piece = 'x'.repeat(1 << 20);
      for (let count = 0; count < 52; count += 1) {
        if (connection.destroyed) return;
        if (!connection.write(piece)) {
          await Promise.race([new Promise((go) => connection.once('drain', go)), pause(2000)]);
        }
      }
      return;
    }
    case '/large':
      say('y'.repeat(20 << 20));
      result('large');
      return done();
    default:
      say(`Turn ${remembered.length}: ${text}`);
      result(`Answer to: ${text}`);
      return done();
  }
}

const server = net.createServer((connection) => {
  connection.write('{"ev":"ready"}\n');
  let buffer = '';
  connection.setEncoding('utf8');
  connection.on('error', () => {});
  connection.on('data', (chunk) => {
    buffer += chunk;
    for (let end = buffer.indexOf('\n'); end >= 0; end = buffer.indexOf('\n')) {
      const command = JSON.parse(buffer.slice(0, end));
      buffer = buffer.slice(end + 1);
      if (command.cmd === 'query') void run(connection, command);
      if (command.cmd === 'interrupt') interrupted = true;
      if (command.cmd === 'shutdown') process.exit(0);
    }
  });
});
server.listen(ASH_BRIDGE_SOCKET, () => process.stdout.write('R'));
