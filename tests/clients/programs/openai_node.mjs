// Runs the openai npm package. Arguments: `responses` or `chat`, then cases. Prints the results as JSON.
import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const QUESTIONS = {
  loop: 'Plan my weekend in Paris.',
  parallel: 'What is the weather in Paris and in Rome?',
  structured: 'Which city, and a hotel of how many stars?',
};
const MOST_TURNS = 8;
const Place = z.object({ city: z.string(), stars: z.number() });
const strings = { type: 'array', items: { type: 'string' } };
const FUNCTIONS = {
  get_weather: {
    description: 'Current weather of a city.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    run: ({ city }) => `18 degrees in ${city}`,
  },
  find_hotel: {
    description: 'Finds a hotel.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, stars: { type: 'integer' }, wishes: strings },
      required: ['city', 'stars', 'wishes'],
    },
    run: () => 'Hôtel du Nord',
  },
};
const [api, ...cases] = process.argv.slice(2);
const client = new OpenAI();
const model = process.env.MODEL;

/** The response, and the text that a user saw as it came. */
async function respond(stream, request) {
  if (!stream) {
    const response = await client.responses.parse({ model, ...request });
    return [response, response.output_text];
  }
  let shown = '';
  const events = client.responses.stream({ model, ...request });
  events.on('response.output_text.delta', (event) => (shown += event.delta));
  return [await events.finalResponse(), shown];
}

/** Runs a tool loop that sends the response's items back unchanged. */
async function responsesLoop(question, stream) {
  const tools = Object.entries(FUNCTIONS).map(([name, { description, parameters }]) => ({
    type: 'function', name, description, parameters, strict: false,
  }));
  const input = [{ role: 'user', content: question }];
  const seen = { calls: [], reasoning: [], output_tokens: [] };
  for (let turn = 0; turn < MOST_TURNS; turn++) {
    const [response, shown] = await respond(stream, { input, tools });
    seen.output_tokens.push(response.usage.output_tokens);
    input.push(...response.output);
    const calls = response.output.filter((item) => item.type === 'function_call');
    for (const item of response.output.filter((item) => item.type === 'reasoning')) {
      seen.reasoning.push((item.content ?? []).map((part) => part.text).join(''));
    }
    for (const call of calls) {
      const given = JSON.parse(call.arguments);
      seen.calls.push([call.name, given]);
      const output = FUNCTIONS[call.name].run(given);
      input.push({ type: 'function_call_output', call_id: call.call_id, output });
    }
    if (!calls.length) return { ...seen, shown, text: response.output_text };
  }
  return seen;
}

/** Runs the package's tool runner. */
async function chatLoop(question, stream) {
  const calls = [];
  const tools = Object.entries(FUNCTIONS).map(([name, { run, ...rest }]) => ({
    type: 'function',
    function: {
      ...rest,
      name,
      parse: JSON.parse,
      function: (given) => {
        calls.push([name, given]);
        return run(given);
      },
    },
  }));
  const messages = [{ role: 'user', content: question }];
  const options = stream ? { stream, stream_options: { include_usage: true } } : {};
  const runner = client.chat.completions.runTools({ model, messages, tools, ...options });
  let shown = '';
  const thoughts = {}; // for streams, because the package keeps only the last delta of unknown fields
  if (stream) {
    runner.on('content', (delta) => (shown += delta));
    runner.on('chunk', ({ id, choices: [choice] }) => {
      thoughts[id] = (thoughts[id] ?? '') + (choice?.delta.reasoning ?? '');
    });
  }
  const text = await runner.finalContent();
  const completions = runner.allChatCompletions();
  return {
    calls,
    reasoning: stream ? Object.values(thoughts) : completions.map((each) => each.choices[0].message.reasoning),
    output_tokens: completions.map((each) => each.usage.completion_tokens),
    shown: stream ? shown : text,
    text,
  };
}

async function responsesParsed(question, stream) {
  const text = { format: zodTextFormat(Place, 'place') };
  const [response] = await respond(stream, { input: question, text });
  return response.output_parsed;
}

async function chatParsed(question, stream) {
  const request = {
    model,
    messages: [{ role: 'user', content: question }],
    response_format: zodResponseFormat(Place, 'place'),
  };
  const completion = stream
    ? await client.chat.completions.stream(request).finalChatCompletion()
    : await client.chat.completions.parse(request);
  return completion.choices[0].message.parsed;
}

const [loop, parsed] = api === 'responses' ? [responsesLoop, responsesParsed] : [chatLoop, chatParsed];

/** The results in bodies and streams, or the error of a failure. */
async function told(name) {
  const run = name === 'structured' ? parsed : loop;
  try {
    return { body: await run(QUESTIONS[name], false), stream: await run(QUESTIONS[name], true) };
  } catch (error) {
    return { failed: error.stack };
  }
}

const seen = {};
for (const name of cases) seen[name] = await told(name);
console.log(JSON.stringify(seen));
