// Forms made from schemas. A field that nobody touched keeps what it was given, be it something that it cannot show.

// So deep a form goes into schemas that name themselves; what is below is for JSON.
const deepest = 5;

// A schema as it is meant: what it refers to is put in, and what only allows `null` as well is left out.
function meant(schema, root, depth = 0) {
  if (!isObject(schema) || depth > 10) return {};
  const { $ref: ref, ...said } = schema;
  if (typeof ref === 'string' && ref.startsWith('#')) {
    const steps = ref.slice(1).split('/').slice(1).map((step) => { try { return decodeURIComponent(step); } catch { return step; } });
    const target = steps.map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~')).reduce((at, step) => at?.[step], root);
    return meant({ ...(isObject(target) ? target : {}), ...said }, root, depth + 1);
  }
  for (const key of ['allOf', 'anyOf', 'oneOf']) {
    const { [key]: all, ...others } = said;
    const left = Array.isArray(all) ? all.filter((one) => key === 'allOf' || one?.type !== 'null') : [];
    if (left.length === 1 && isObject(left[0])) return meant({ ...left[0], ...others }, root, depth + 1);
  }
  return said;
}

const kindOf = (said) => (Array.isArray(said.type) ? said.type.find((word) => word !== 'null') : said.type);

// What can be chosen from: the values, and what each is called.
function choicesOf(said) {
  const named = [said.oneOf, said.anyOf].find((all) => Array.isArray(all) && all.length && all.every((one) => isObject(one) && 'const' in one));
  const values = Array.isArray(said.enum) ? said.enum : 'const' in said ? [said.const] : named?.map((one) => one.const);
  if (!values) return null;
  const plain = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
  const titles = Array.isArray(said.enum) ? said.enumNames : named?.map((one) => one.title);
  return values.map((value, at) => ({ text: JSON.stringify(value), title: visible(String(titles?.[at] ?? plain(value))) }));
}

const numberText = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const numberOf = (text) => (numberText.test(text) ? text : String(Number(text)));

// Each kind of field: the element, `read` for its value as JSON or undefined, `show` for putting one there.

// One of several, chosen. Nothing is chosen for anybody: who agrees must say so.
function choosing({ id, required, usual }, choices) {
  const input = make('select', { id }, make('option', { value: '', textContent: required ? 'please choose' : usual ? `– (${usual})` : '–' }));
  choices.forEach((choice, at) => input.append(make('option', { value: String(at), textContent: choice.title })));
  const read = () => (input.value === '' ? undefined : choices[Number(input.value)].text);
  const show = (text) => { const at = text === undefined ? -1 : choices.findIndex((choice) => choice.text === JSON.stringify(JSON.parse(text))); input.value = at < 0 ? '' : String(at); };
  return { input, read, show };
}

function counting({ id, usual, said }, kind) {
  const input = make('input', { id, type: 'number', step: kind === 'integer' ? '1' : 'any', placeholder: usual });
  if (typeof said.minimum === 'number') input.min = said.minimum;
  if (typeof said.maximum === 'number') input.max = said.maximum;
  const read = () => (input.value === '' ? undefined : numberOf(input.value));
  return { input, read, show: (text) => { input.value = /^-?\d/.test(text ?? '') ? text : ''; } };
}

function writing({ id, usual, said, name, required, strict }) {
  const isLong = (said.maxLength ?? 0) > 200 || /text|body|content|query|code|message|sql|prompt|description|html|markdown|command|diff|script|template|instructions/i.test(name);
  const type = { email: 'email', date: 'date', uri: 'url' }[strict ? said.format : ''] ?? 'text';
  const made = { input: isLong && type === 'text' ? make('textarea', { id, rows: 3 }) : make('input', { id, type }) };
  const limit = (input) => {
    input.placeholder = usual;
    if (strict && said.minLength > 0) input.minLength = said.minLength;
    if (strict && said.maxLength > 0) input.maxLength = said.maxLength;
  };
  limit(made.input);
  made.read = () => (made.input.value === '' && !required ? undefined : JSON.stringify(made.input.value));
  made.show = (text) => {
    const value = text === undefined ? '' : JSON.parse(text);
    // An input of one line would swallow the ends of lines.
    if (typeof value === 'string' && value.includes('\n') && made.input.tagName === 'INPUT') {
      const area = make('textarea', { id, rows: 3, required: made.input.required });
      limit(area);
      made.input.replaceWith(area);
      made.input = area;
      made.heard?.(area);
    }
    made.input.value = typeof value === 'string' ? value : text;
  };
  return made;
}

function json({ id, usual, name }, kind) {
  const input = make('textarea', { id, rows: 3, spellcheck: false, placeholder: usual || (kind === 'array' ? '[]' : 'JSON') });
  const read = () => {
    input.setCustomValidity('');
    const text = input.value.trim();
    if (text === '') return undefined;
    try { JSON.parse(text); return compact(text); } catch (error) { input.setCustomValidity(`no JSON: ${error.message}`); throw new Error(`${name}: this is no JSON`); }
  };
  return { input, read, show: (text) => { input.setCustomValidity(''); input.value = text === undefined ? '' : indented(text); } };
}

// Words or numbers, one a line. Whoever writes a JSON array is understood, too: a word may have more than one line.
function listing({ id, usual, name }, kind) {
  const input = make('textarea', { id, rows: 3, spellcheck: false, placeholder: usual || 'one a line' });
  const item = (line) => {
    if (kind === 'string') return JSON.stringify(line);
    if (numberText.test(line.trim())) return line.trim();
    input.setCustomValidity(`${line}: this is no number`);
    throw new Error(`${name}: ${line} is no number`);
  };
  const read = () => {
    input.setCustomValidity('');
    const text = input.value.trim();
    if (text === '') return undefined;
    try { if (Array.isArray(JSON.parse(text))) return compact(text); } catch { /* it is written line by line */ }
    return `[${text.split('\n').filter((line) => line.trim()).map(item).join(',')}]`;
  };
  const show = (text) => {
    input.setCustomValidity('');
    const all = text === undefined ? [] : JSON.parse(text);
    const isPlain = Array.isArray(all) && all.every((one) => (kind === 'string' ? typeof one === 'string' && one.trim() && !/[\n[]/.test(one) : false));
    input.value = isPlain ? all.join('\n') : indented(text);
  };
  return { input, read, show };
}

// Several of what can be chosen from, as boxes to be ticked.
function ticking({ said, name, required, strict, hint }, choices) {
  const boxes = choices.map(({ title }) => make('label', { className: 'check' }, make('input', { type: 'checkbox' }), ' ', title));
  const inputs = boxes.map((box) => box.querySelector('input'));
  const input = make('fieldset', { className: 'ticks' }, make('legend', {}, name, ' ', make('span', { className: 'hint', textContent: hint })), ...boxes);
  // What is there and cannot be chosen here stays.
  let others = [];
  const check = () => {
    const count = inputs.filter((one) => one.checked).length + others.length;
    const least = strict ? Math.max(said.minItems ?? 0, 0) : 0;
    const tooFew = count < least && (required || count > 0) ? `Tick at least ${least}.` : '';
    inputs[0]?.setCustomValidity(strict && count > (said.maxItems ?? Infinity) ? `Tick at most ${said.maxItems}.` : tooFew);
  };
  const read = () => { check(); return `[${[...choices.filter((_, at) => inputs[at].checked).map((choice) => choice.text), ...others].join(',')}]`; };
  const show = (text) => {
    const given = text === undefined ? [] : JSON.parse(text);
    const texts = (Array.isArray(given) ? given : []).map((value) => JSON.stringify(value));
    inputs.forEach((one, at) => { one.checked = texts.includes(choices[at].text); });
    others = texts.filter((value) => !choices.some((choice) => choice.text === value));
    check();
  };
  check();
  return { input, read, show, isWhole: true };
}

function fitting(about, choices) {
  const { said } = about;
  const kind = kindOf(said);
  if (choices) return choosing(about, choices);
  if (kind === 'boolean') return choosing(about, ['true', 'false'].map((word) => ({ text: word, title: word })));
  if (kind === 'number' || kind === 'integer') return counting(about, kind);
  if (kind === 'string') return writing(about);
  const items = kind === 'array' ? meant(said.items, about.root) : {};
  const several = kind === 'array' ? choicesOf(items) : null;
  if (several) return ticking(about, several);
  if (['string', 'number', 'integer'].includes(kindOf(items))) return listing(about, kindOf(items));
  return json(about, kind);
}

// A field for a schema. `get` gives its value as JSON or undefined, `set` shows one. A strict one is held back by the browser
// until it is filled in as its schema wants it.
function field(schema, name, required, changed, strict, root, depth) {
  const said = meant(schema, root);
  const choices = choicesOf(said);
  if (kindOf(said) === 'object' && isObject(said.properties) && !choices && depth < deepest) return group(said, name, required, changed, strict, root, depth + 1);
  const id = `field-${counter += 1}`;
  const hint = visible([required ? 'required' : '', said.title ?? '', said.description ?? ''].filter(Boolean).join(' · '));
  const title = choices?.find((choice) => choice.text === JSON.stringify(said.default))?.title;
  const usual = said.default === undefined || said.default === null ? '' : visible(`default: ${title ?? (typeof said.default === 'string' ? said.default : JSON.stringify(said.default))}`);
  const made = fitting({ id, said, name, required, strict, hint, usual, root }, choices);
  let given;
  let isTouched = false;
  const touch = () => { isTouched = true; changed(); };
  made.input.required = Boolean(strict && required);
  made.input.addEventListener('input', touch);
  made.heard = (input) => input.addEventListener('input', touch);
  const get = () => (isTouched ? made.read() : given);
  const set = (text) => { given = text; isTouched = false; made.show(text); };
  // The answer to a question begins with what its server proposes: who changes nothing answers that.
  if (strict && said.default !== undefined) set(JSON.stringify(said.default));
  const label = make('label', { htmlFor: id }, name, ' ', make('span', { className: 'hint', textContent: hint }));
  const box = made.isWhole ? made.input : make('div', { className: 'field' }, label, made.input);
  return { box, get, set };
}

// Fields for all members of an object. Members that the schema does not name are kept as they are, and so is what should be
// an object and is none, until somebody fills in a field of it.
function group(schema, name, required, changed, strict, root = schema, depth = 0) {
  const box = name ? make('fieldset', {}, make('legend', { textContent: name })) : make('div');
  const must = Array.isArray(schema.required) ? schema.required : [];
  let odd;
  const touch = () => { odd = undefined; changed(); };
  const members = Object.entries(isObject(schema.properties) ? schema.properties : {}).map(([key, member]) => [key, field(member, key, must.includes(key), touch, strict, root, depth)]);
  members.forEach(([, member]) => box.append(member.box));
  let others = [];
  let isGiven = false;
  const get = () => {
    if (odd !== undefined) return odd;
    const all = [...others, ...members.map(([key, member]) => [key, member.get()]).filter(([, value]) => value !== undefined)];
    return !name || required || isGiven || all.length ? `{${all.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(',')}}` : undefined;
  };
  const set = (text) => {
    const isObjectGiven = text !== undefined && isObjectText(text);
    odd = isObjectGiven ? undefined : text;
    isGiven = isObjectGiven;
    // Of two with one name the last counts, as everywhere.
    const byName = new Map(isObjectGiven ? membersOf(text) : []);
    members.forEach(([key, member]) => member.set(byName.get(key)));
    others = [...byName].filter(([key]) => !members.some(([known]) => known === key));
  };
  return { box, get, set };
}
