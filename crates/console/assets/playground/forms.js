// Forms made from schemas. A field that nobody touched keeps what it was given, be it something that it cannot show.

// So deep a form goes into schemas that name themselves; what is below is for JSON.
const deepest = 5;

// A field for a schema. `get` gives its value as JSON or undefined, `has` says whether anybody gave it one, `set` shows one. A strict one is held back by the browser
// until it is filled in as its schema wants it.
function field(schema, name, required, changed, strict, root, depth) {
  const said = meant(schema, root);
  const choices = choicesOf(said);
  if (kindOf(said) === 'object' && isObject(said.properties) && !choices && depth < deepest) return group(said, name, required, changed, strict, root, depth + 1);
  const id = `field-${counter += 1}`;
  const hint = visible([required ? 'required' : '', said.title ?? '', said.description ?? ''].filter(Boolean).join(' · '));
  const title = choices?.find((choice) => choice.text === JSON.stringify(said.default))?.title;
  const usual = said.default === undefined || said.default === null ? '' : visible(`default: ${title ?? plain(said.default)}`);
  const made = fitting({ id, said, name, required, strict, hint, usual, root }, choices);
  const kept = make('span', { className: 'hint kept', id: `${id}-kept`, hidden: true });
  let given;
  let isTouched = false;
  const touch = () => { isTouched = true; kept.hidden = true; changed(); };
  const hear = (input) => { input.addEventListener('input', touch); input.setAttribute('aria-describedby', kept.id); };
  made.input.required = Boolean(strict && required);
  made.heard = hear;
  hear(made.input);
  // Who is asked to tick and ticks nothing has answered; what can be nothing else need not be said.
  const unsaid = () => (required && (made.isFixed || strict && made.isWhole) ? made.read() : undefined);
  const has = () => (isTouched ? made.read() : given) !== undefined;
  const get = (isNew) => (isTouched ? made.read() : given ?? (isNew ? unsaid() : undefined));
  const set = (text) => {
    given = text;
    isTouched = false;
    made.show(text);
    kept.hidden = text === undefined || shows(made, text);
    kept.textContent = kept.hidden ? '' : visible(`in the JSON: ${text.length > 80 ? `${text.slice(0, 80)}…` : text}`);
  };
  // The answer to a question begins with what its server proposes: who changes nothing answers that.
  if (strict && said.default !== undefined) set(JSON.stringify(said.default));
  const label = make('label', { htmlFor: id }, visible(name), ' ', make('span', { className: 'hint', textContent: hint }));
  if (made.isWhole) made.input.append(kept);
  return { box: made.isWhole ? made.input : make('div', { className: 'field' }, label, made.input, kept), has, get, set };
}

// Whether a field shows what it was given. What is too long to look at is taken for shown.
function shows(made, text) {
  if (text.length > 100000) return true;
  try { const read = made.read(); return read === undefined ? text === '""' : sameness(read) === sameness(text); } catch { made.input.setCustomValidity(''); return false; }
}

// Fields for all members of an object. Members that the schema does not name are kept as they are and where they are, and
// so is what should be an object and is none, until somebody fills in a field of it.
function group(schema, name, required, changed, strict, root = schema, depth = 0) {
  const box = name ? make('fieldset', {}, make('legend', { textContent: visible(name) })) : make('div');
  const must = Array.isArray(schema.required) ? schema.required : [];
  let odd;
  const touch = () => { odd = undefined; changed(); };
  const known = Object.entries(isObject(schema.properties) ? schema.properties : {});
  const members = new Map(known.map(([key, member]) => [key, field(member, key, must.includes(key), touch, strict, root, depth)]));
  members.forEach((member) => box.append(member.box));
  let given = null;
  const has = () => odd !== undefined || given !== null || [...members.values()].some((member) => member.has());
  // An object that the form itself makes has what it must have; one that was given stays as it is.
  const get = (isWithinNew = true) => {
    if (odd !== undefined) return odd;
    const isNew = given === null;
    if (name && !has() && !(required && isWithinNew)) return undefined;
    const keys = new Set([...(given?.keys() ?? []), ...members.keys()]);
    const all = [...keys].map((key) => [key, members.has(key) ? members.get(key).get(isNew) : given.get(key)]).filter(([, value]) => value !== undefined);
    return `{${all.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(',')}}`;
  };
  const set = (text) => {
    const isObjectGiven = text !== undefined && isObjectText(text);
    odd = isObjectGiven ? undefined : text;
    // Of two with one name the last counts, as everywhere.
    given = isObjectGiven ? new Map(membersOf(text)) : null;
    members.forEach((member, key) => member.set(given?.get(key)));
  };
  return { box, has, get, set };
}
