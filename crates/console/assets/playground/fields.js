// Each kind of field: its element, `read` returns its value as JSON or undefined, `show` sets it.

const numberText = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const numberOf = (text) => (numberText.test(text) ? text : String(Number(text)));
// A value as JSON for comparison: `1.0` equals `1`.
const sameness = (text) => JSON.stringify(JSON.parse(text));

// Reports an invalid value at the field, which blocks the call, and throws it.
function wrong(input, name, why) {
  input.setCustomValidity(why);
  throw new Error(`${name}: ${why}`);
}

// A choice of one value. Nothing is preselected, because a choice may be consent.
function choosing({ id, required, usual }, choices) {
  const input = make('select', { id }, make('option', { value: '', textContent: required ? 'please choose' : usual ? `– (${usual})` : '–' }));
  choices.forEach((choice, at) => input.append(make('option', { value: String(at), textContent: choice.title })));
  const read = () => (input.value === '' ? undefined : choices[Number(input.value)].text);
  const show = (text) => {
    const at = text === undefined ? -1 : choices.findIndex((choice) => choice.text === sameness(text));
    input.value = at < 0 ? '' : String(at);
  };
  return { input, read, show };
}

// A value with only one possibility.
function fixed({ id }, [choice]) {
  const input = make('input', { id, type: 'text', readOnly: true, placeholder: choice.title });
  return { input, read: () => choice.text, show: (text) => { input.value = text === undefined ? '' : choice.title; }, isFixed: true };
}

function counting({ id, usual, said, name }, kind) {
  const input = make('input', { id, type: 'number', step: kind === 'integer' ? '1' : 'any', placeholder: usual });
  if (typeof said.minimum === 'number') input.min = said.minimum;
  if (typeof said.maximum === 'number') input.max = said.maximum;
  const read = () => {
    // The browser returns an empty value for text that it cannot parse; that differs from an empty field.
    if (input.validity.badInput) throw new Error(`${name}: not a number`);
    return input.value === '' ? undefined : numberOf(input.value);
  };
  return { input, read, show: (text) => { input.value = /^-?\d/.test(text ?? '') ? text : ''; } };
}

const longNames = /text|body|content|query|code|message|sql|prompt|description|html|markdown|command|diff|script|template|instructions/i;

function writing({ id, usual, said, name, strict }) {
  const isLong = (said.maxLength ?? 0) > 200 || longNames.test(name);
  const type = { email: 'email', date: 'date', uri: 'url' }[strict ? said.format : ''] ?? 'text';
  const made = {};
  const use = (input) => {
    made.input = input;
    input.placeholder = usual;
    if (strict && said.minLength > 0) input.minLength = said.minLength;
    if (strict && said.maxLength > 0) input.maxLength = said.maxLength;
  };
  // A single-line field would remove line breaks.
  const grow = (value) => {
    const old = made.input;
    use(make('textarea', { id, rows: 3, required: old.required, value }));
    old.replaceWith(made.input);
    made.attachInput?.(made.input);
  };
  const growAndType = (event, text) => {
    event.preventDefault();
    const { selectionStart: from, selectionEnd: to, value } = made.input;
    grow(value);
    made.input.focus();
    made.input.setRangeText(text, from, to, 'end');
    made.input.dispatchEvent(new Event('input'));
  };
  if (isLong && type === 'text') use(make('textarea', { id, rows: 3 }));
  else use(make('input', { id, type }));
  if (made.input.tagName === 'INPUT' && type === 'text') {
    made.input.title = 'Shift+Enter starts a new line';
    made.input.addEventListener('keydown', (event) => { if (event.key === 'Enter' && event.shiftKey) growAndType(event, '\n'); });
    made.input.addEventListener('paste', (event) => {
      const text = event.clipboardData?.getData('text/plain') ?? '';
      if (/[\r\n]/.test(text)) growAndType(event, text.replace(/\r\n?/g, '\n'));
    });
  }
  made.read = () => (made.input.value === '' ? undefined : JSON.stringify(made.input.value));
  made.show = (text) => {
    const value = text === undefined ? '' : JSON.parse(text);
    const words = typeof value === 'string' ? value : '';
    if (/[\r\n]/.test(words) && made.input.tagName === 'INPUT') grow('');
    made.input.value = words;
  };
  return made;
}

// A value without a field of its own. If strings are allowed, they need not be written as JSON.
function loose({ id, usual, name, said, root }) {
  const kinds = kindsOf(said, root);
  const takesWords = isOfKind('', kinds);
  const input = make('textarea', { id, rows: 3, spellcheck: false, placeholder: usual || (takesWords ? 'words, or JSON' : kindOf(said) === 'array' ? '[]' : 'JSON') });
  const read = () => {
    input.setCustomValidity('');
    const text = input.value.trim();
    if (text === '') return undefined;
    let value;
    try { value = JSON.parse(text); } catch (error) {
      // Text that begins like JSON is treated as JSON.
      return takesWords && !/^["[{]/.test(text) ? JSON.stringify(input.value) : wrong(input, name, `invalid JSON: ${error.message}`);
    }
    return isOfKind(value, kinds) || !takesWords ? compact(text) : JSON.stringify(input.value);
  };
  const show = (text) => {
    input.setCustomValidity('');
    const value = text === undefined ? '' : JSON.parse(text);
    input.value = typeof value === 'string' && readsAsWords(value, kinds) ? value : indented(text);
  };
  return { input, read, show };
}
// Whether plain text would be read as the same string.
function readsAsWords(words, kinds) {
  if (!words.trim()) return words === '';
  if (!isOfKind('', kinds) || words.includes('\r') || /^\s*["[{]/.test(words)) return false;
  try { return !isOfKind(JSON.parse(words), kinds); } catch { return true; }
}

// Strings or numbers, one per line. A JSON array is accepted, too, for strings with several lines.
function listing({ id, usual, name }, kind) {
  const input = make('textarea', { id, rows: 3, spellcheck: false, placeholder: usual ? `one per line; ${usual}` : 'one per line' });
  const item = (line) => {
    if (kind === 'string') return JSON.stringify(line);
    if (kind === 'boolean' && /^(true|false)$/.test(line.trim())) return line.trim();
    if (kind !== 'boolean' && numberText.test(line.trim())) return line.trim();
    return wrong(input, name, `${visible(line)} is ${kind === 'boolean' ? 'neither true nor false' : 'not a number'}; write one per line`);
  };
  const isItem = (value) => (kind === 'integer' ? typeof value === 'number' : typeof value === kind);
  const read = () => {
    input.setCustomValidity('');
    const text = input.value.trim();
    if (text === '') return undefined;
    try { const all = JSON.parse(text); if (Array.isArray(all) && all.every(isItem)) return compact(text); } catch (error) { /* it is written line by line */ if (/^\[\s*"/.test(text)) wrong(input, name, `invalid JSON: ${error.message}`); }
    return `[${input.value.split(kind === 'string' ? '\n' : /[\n,]/).filter((line) => line.trim()).map(item).join(',')}]`;
  };
  const show = (text) => {
    input.setCustomValidity('');
    const all = text === undefined ? [] : JSON.parse(text);
    const isPlain = Array.isArray(all) && all.length && all.every((one) => isItem(one) && (kind !== 'string' || one.trim() && !/[\r\n]|^\s*\[/.test(one)));
    if (isPlain) input.value = kind === 'string' ? all.join('\n') : itemsOf(text).join('\n');
    else input.value = text === undefined ? '' : indented(text);
  };
  return { input, read, show };
}

// A choice of several values, as check boxes.
function ticking({ said, name, required, strict, hint }, choices) {
  const boxes = choices.map(({ title }) => make('label', { className: 'check' }, make('input', { type: 'checkbox' }), ' ', title));
  const inputs = boxes.map((box) => box.querySelector('input'));
  const input = make('fieldset', { className: 'ticks' }, make('legend', {}, visible(name), ' ', make('span', { className: 'hint', textContent: hint })), ...boxes);
  // Existing values that are not among the choices are kept.
  let others = [];
  const check = () => {
    const count = inputs.filter((one) => one.checked).length + others.length;
    const least = strict ? Math.max(said.minItems ?? 0, 0) : 0;
    const tooFew = count < least && (required || count > 0) ? `Select at least ${least}.` : '';
    inputs[0]?.setCustomValidity(strict && count > (said.maxItems ?? Infinity) ? `Select at most ${said.maxItems}.` : tooFew);
  };
  const read = () => {
    check();
    const all = [...choices.filter((_, at) => inputs[at].checked).map((choice) => choice.text), ...others];
    // Clearing the last check box of an optional field removes its value.
    return all.length || required ? `[${all.join(',')}]` : undefined;
  };
  const show = (text) => {
    const given = text !== undefined && text.startsWith('[') ? itemsOf(text) : [];
    inputs.forEach((one, at) => { one.checked = given.some((value) => sameness(value) === choices[at].text); });
    others = given.filter((value) => !choices.some((choice) => choice.text === sameness(value)));
    check();
  };
  check();
  return { input, read, show, isWhole: true };
}

function fitting(about, choices) {
  const { said, root, required, strict } = about;
  const kind = kindOf(said);
  // A person answers a server request, even if only one answer is possible.
  if ('const' in said && required && !strict) return fixed(about, choices);
  if (choices) return choosing(about, choices);
  if (Array.isArray(said.type) && said.type.filter((word) => word !== 'null').length > 1) return loose(about);
  if (kind === 'boolean') return choosing(about, ['true', 'false'].map((word) => ({ text: word, title: word })));
  if (kind === 'number' || kind === 'integer') return counting(about, kind);
  if (kind === 'string') return writing(about);
  const items = kind === 'array' ? meant(said.items, root) : {};
  const several = kind === 'array' ? choicesOf(items) : null;
  if (several) return ticking(about, several);
  if (['string', 'number', 'integer', 'boolean'].includes(kindOf(items))) return listing(about, kindOf(items));
  return loose(about);
}
