// Forms made from schemas.

// What can be chosen from: the values, and what each is called.
function choicesOf(said) {
  const named = [said.oneOf, said.anyOf].find((all) => Array.isArray(all) && all.length && all.every((one) => isObject(one) && 'const' in one));
  const values = Array.isArray(said.enum) ? said.enum : named?.map((one) => one.const);
  if (!values) return null;
  const plain = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
  const titles = Array.isArray(said.enum) ? said.enumNames : named.map((one) => one.title);
  return values.map((value, at) => ({ value, text: JSON.stringify(value), title: visible(String(titles?.[at] ?? plain(value))) }));
}

// Several of what can be chosen from, as boxes to be ticked.
function ticks(said, choices, name, required, changed, strict, hint) {
  const boxes = choices.map(({ title }) => make('label', { className: 'check' }, make('input', { type: 'checkbox' }), ' ', title));
  const inputs = boxes.map((box) => box.querySelector('input'));
  const box = make('fieldset', { className: 'ticks' }, make('legend', {}, name, ' ', make('span', { className: 'hint', textContent: hint })), ...boxes);
  // What is there and cannot be chosen here stays; who has ticked nothing on purpose means nothing, not "as usual".
  let others = [];
  let isTouched = false;
  const check = () => {
    const count = inputs.filter((input) => input.checked).length + others.length;
    const least = strict ? Math.max(said.minItems ?? 0, 0) : 0;
    const tooFew = count < least && (required || count > 0) ? `Tick at least ${least}.` : '';
    inputs[0]?.setCustomValidity(strict && count > (said.maxItems ?? Infinity) ? `Tick at most ${said.maxItems}.` : tooFew);
  };
  const get = () => {
    const chosen = [...choices.filter((_, at) => inputs[at].checked).map((choice) => choice.text), ...others];
    return chosen.length || required || isTouched ? `[${chosen.join(',')}]` : undefined;
  };
  const set = (text) => {
    const given = text === undefined ? undefined : JSON.parse(text);
    const texts = (Array.isArray(given) ? given : []).map((value) => JSON.stringify(value));
    inputs.forEach((input, at) => { input.checked = texts.includes(choices[at].text); });
    others = texts.filter((value) => !choices.some((choice) => choice.text === value));
    isTouched = Array.isArray(given);
    check();
  };
  inputs.forEach((input) => input.addEventListener('input', () => { isTouched = true; check(); changed(); }));
  check();
  return { box, get, set };
}

// A field for a schema. `get` gives its value as JSON or undefined, `set` shows one. A strict one is held back by the browser
// until it is filled in as its schema wants it.
function field(schema, name, required, changed, strict) {
  const id = `field-${counter += 1}`;
  const said = isObject(schema) ? schema : {};
  const kind = Array.isArray(said.type) ? said.type.find((word) => word !== 'null') : said.type;
  const hint = visible([required ? 'required' : '', said.title ?? '', said.description ?? ''].filter(Boolean).join(' · '));
  const label = make('label', { htmlFor: id }, name, ' ', make('span', { className: 'hint', textContent: hint }));
  const choices = choicesOf(said);
  if (kind === 'object' && isObject(said.properties) && !choices) return group(said, name, required, changed, strict);
  const several = kind === 'array' && !choices && isObject(said.items) ? choicesOf(said.items) : null;
  if (several) return begun(ticks(said, several, name, required, changed, strict, hint), said, strict);
  const box = make('div', { className: 'field' });
  const title = choices?.find((choice) => choice.text === JSON.stringify(said.default))?.title;
  const usual = said.default === undefined ? '' : visible(`default: ${title ?? (typeof said.default === 'string' ? said.default : JSON.stringify(said.default))}`);
  const nothing = () => (required ? null : make('option', { value: '', textContent: usual ? `– (${usual})` : '–' }));
  let input;
  let get;
  let set;
  if (choices) {
    input = make('select', { id }, nothing());
    choices.forEach((choice, at) => input.append(make('option', { value: String(at), textContent: choice.title })));
    get = () => (input.value === '' ? undefined : choices[Number(input.value)].text);
    set = (text) => { const at = text === undefined ? -1 : choices.findIndex((choice) => choice.text === JSON.stringify(JSON.parse(text))); input.value = at < 0 ? '' : String(at); };
  } else if (kind === 'boolean') {
    input = make('select', { id }, nothing(), make('option', { value: 'true', textContent: 'true' }), make('option', { value: 'false', textContent: 'false' }));
    get = () => (input.value === '' ? undefined : input.value);
    set = (text) => { input.value = text === 'true' || text === 'false' ? text : ''; };
  } else if (kind === 'number' || kind === 'integer') {
    input = make('input', { id, type: 'number', step: kind === 'integer' ? '1' : 'any', placeholder: usual });
    if (typeof said.minimum === 'number') input.min = said.minimum;
    if (typeof said.maximum === 'number') input.max = said.maximum;
    get = () => (input.value === '' ? undefined : /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(input.value) ? input.value : String(Number(input.value)));
    set = (text) => { input.value = /^-?\d/.test(text ?? '') ? text : ''; };
  } else if (kind === 'string') {
    const long = (said.maxLength ?? 0) > 200 || /text|body|content|query|code|message/i.test(name);
    input = long ? make('textarea', { id, rows: 3 }) : make('input', { id, type: { email: 'email', date: 'date', uri: 'url' }[strict ? said.format : ''] ?? 'text' });
    input.placeholder = usual;
    if (strict && said.minLength > 0) input.minLength = said.minLength;
    if (strict && said.maxLength > 0) input.maxLength = said.maxLength;
    get = () => (input.value === '' && !required ? undefined : JSON.stringify(input.value));
    set = (text) => { const value = text === undefined ? '' : JSON.parse(text); input.value = typeof value === 'string' ? value : text; };
  } else {
    input = make('textarea', { id, rows: 3, spellcheck: false, placeholder: usual || (kind === 'array' ? '[]' : 'JSON') });
    get = () => {
      input.setCustomValidity('');
      const text = input.value.trim();
      if (text === '') return undefined;
      try { JSON.parse(text); return compact(text); } catch (error) { input.setCustomValidity(`no JSON: ${error.message}`); throw new Error(`${name}: this is no JSON`); }
    };
    set = (text) => { input.setCustomValidity(''); input.value = text === undefined ? '' : indented(text); };
  }
  input.required = Boolean(strict && required);
  input.addEventListener('input', changed);
  box.append(label, input);
  return begun({ box, get, set }, said, strict);
}

// The answer to a question begins with what its server proposes: who changes nothing answers that.
function begun(made, said, strict) {
  if (strict && said.default !== undefined) made.set(JSON.stringify(said.default));
  return made;
}

// Fields for all members of an object. Members that the schema does not name are kept as they are.
function group(schema, name, required, changed, strict) {
  const box = name ? make('fieldset', {}, make('legend', { textContent: name })) : make('div');
  const must = Array.isArray(schema.required) ? schema.required : [];
  const members = Object.entries(isObject(schema.properties) ? schema.properties : {}).map(([key, member]) => [key, field(member, key, must.includes(key), changed, strict)]);
  members.forEach(([, member]) => box.append(member.box));
  let others = [];
  const get = () => {
    const all = [...others, ...members.map(([key, member]) => [key, member.get()]).filter(([, value]) => value !== undefined)];
    return !name || required || all.length ? `{${all.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(',')}}` : undefined;
  };
  const set = (text) => {
    const given = text !== undefined && isObjectText(text) ? membersOf(text) : [];
    // Of two with one name the last counts, as everywhere.
    const byName = new Map(given);
    members.forEach(([key, member]) => member.set(byName.get(key)));
    others = [...byName].filter(([key]) => !members.some(([known]) => known === key));
  };
  return { box, get, set };
}
