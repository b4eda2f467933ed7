// The playground: a form generated from a schema, synchronized with raw JSON, and an MCP client that makes the call, answers
// server requests, shows progress and can cancel. Everything from servers is inserted as text, never as markup.
'use strict';

// - json: JSON as written; schema, limits: interpret schemas; fields: one for each plain value; forms: combine fields
// - lists, maps, unions: values whose parts are added, named or chosen; field_hints: notes at a field
// - client: MCP; run_progress: progress and log of a run; result_view, media: results; question: server requests; bench: all of it together; history: earlier calls

const bench = document.getElementById('bench');
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
let counter = 0;

// Numbers are never parsed and encoded again: `1.0` would become `1`, and long ones would lose digits. JSON is split into
// tokens and joined again instead. All functions here expect JSON that `JSON.parse` accepted.
// No regular expression does this, because strings of many megabytes are too long for one.
function signs(text) {
  const found = [];
  const plain = /[^\s{}[\],:"]+/y;
  for (let at = 0; at < text.length;) {
    const letter = text[at];
    let end = at + 1;
    if (letter === '"') {
      for (end = text.indexOf('"', end); end > 0 && isEscaped(text, end);) end = text.indexOf('"', end + 1);
      end = end < 0 ? text.length : end + 1;
    } else if (!'{}[],:'.includes(letter)) {
      plain.lastIndex = at;
      if (!plain.test(text)) { at += 1; continue; }
      end = plain.lastIndex;
    }
    found.push(text.slice(at, end));
    at = end;
  }
  return found;
}
function isEscaped(text, at) {
  let first = at;
  while (text[first - 1] === '\\') first -= 1;
  return (at - first) % 2 === 1;
}
const compact = (text) => signs(text).join('');

// Longer JSON is shown unchanged.
const longestIndented = 2000000;

function indented(text) {
  if (text.length > longestIndented) return text;
  try { JSON.parse(text); } catch { return text; }
  let out = '';
  let depth = 0;
  const all = signs(text);
  const line = () => `\n${'  '.repeat(depth)}`;
  all.forEach((sign, at) => {
    if (sign === '{' || sign === '[') {
      const isEmpty = all[at + 1] === '}' || all[at + 1] === ']';
      depth += 1;
      out += isEmpty ? sign : sign + line();
    } else if (sign === '}' || sign === ']') {
      depth -= 1;
      out += all[at - 1] === '{' || all[at - 1] === '[' ? sign : line() + sign;
    } else out += sign === ',' ? sign + line() : sign === ':' ? ': ' : sign;
  });
  return out;
}

// JSON with escaped letters decoded: many servers escape all letters outside ASCII.
function spelled(text) {
  if (text.length > longestIndented || !/\\u[0-9a-f]{4}/i.test(text)) return text;
  try { JSON.parse(text); } catch { return text; }
  return signs(text).map((sign) => (sign[0] === '"' ? JSON.stringify(JSON.parse(sign)) : sign)).join('');
}

// The members of an object, each with its value as written.
function membersOf(text) {
  const found = [];
  let depth = 0;
  let key = null;
  let value = '';
  for (const sign of signs(text)) {
    const isOuter = depth === 1;
    if (sign === '}' || sign === ']') depth -= 1;
    if ((isOuter && sign === ',') || depth === 0 && sign === '}') {
      if (key !== null) found.push([key, value]);
      [key, value] = [null, ''];
    } else if (isOuter && key === null) {
      if (sign !== ':') key = JSON.parse(sign);
    } else if (depth > 0 && !(isOuter && sign === ':' && value === '')) value += sign;
    if (sign === '{' || sign === '[') depth += 1;
  }
  return found;
}
const isObjectText = (text) => /^\s*\{/.test(text);

// The items of an array, each as written.
function itemsOf(text) {
  const found = [];
  let depth = 0;
  let item = '';
  for (const sign of signs(text)) {
    if (sign === '}' || sign === ']') depth -= 1;
    if (depth === 0 && sign === ']' || depth === 1 && sign === ',') {
      if (item) found.push(item);
      item = '';
    } else if (depth > 0) item += sign;
    if (sign === '{' || sign === '[') depth += 1;
  }
  return found;
}
