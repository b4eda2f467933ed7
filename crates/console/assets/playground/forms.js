// Forms generated from schemas. An untouched field keeps its initial value, even one that it cannot show.
//
// Every field gets its place: { name, required, strict, root, depth, room, changed, isBare }.
// A strict field is validated by the browser; a bare one has its name in the frame around it;
// `room` is how many fields the form may still create by itself. A field is { box, has, get, set, lacks }: `get` returns its value as JSON or undefined, `has` whether it was set,
// `set` shows a value, `missing` marks the empty required fields and returns them.

// The depth to which required and optional members get fields immediately; deeper fields are created on request.
const deepest = { required: 5, optional: 1 };
// Schemas may be recursive: this many fields are created immediately, and more on request.
const mostFields = 100;

// The form of a whole schema.
function whole(schema, changed, strict = false) {
  const said = meant(schema, schema);
  const place = { name: '', required: true, strict, root: schema, depth: 0, room: { left: mostFields }, changed, isBare: true };
  const branches = isObject(said.properties) ? null : branchesOf(said, schema);
  const made = branches ? union(said, branches, place) : group(said, place);
  return { ...made, get: () => made.get(true) ?? '{}' };
}

function field(schema, place) {
  const { root, depth, required, room } = place;
  room.left -= 1;
  const said = meant(schema, root);
  const choices = choicesOf(said);
  if (choices) return simple(said, choices, place);
  const branches = isObject(said.properties) ? null : branchesOf(said, root);
  if (branches) return union(said, branches, place);
  if (isObjectSchema(said)) {
    const isNow = room.left > 0 && depth < (required ? deepest.required : deepest.optional);
    const inside = { ...place, depth: depth + 1 };
    if (!hasMembers(said) && said.additionalProperties !== false) return map(said, inside);
    return isNow ? group(said, inside) : later((now) => group(said, now), inside, said);
  }
  if (kindOf(said) === 'array' && Array.isArray(said.prefixItems)) return tuple(said, { ...place, depth: depth + 1 });
  if (kindOf(said) === 'array' && isManifold(meant(said.items, root), root)) return series(said, { ...place, depth: depth + 1 });
  return simple(said, null, place);
}

// The maximum length of a description at a field; the tool's page shows all of it.
const mostAbout = 500;

// The label of a field: in forms for people, its title.
const calledIn = (said, { name, strict }) => visible(strict && typeof said.title === 'string' && said.title ? said.title : name).slice(0, 200);

// The hint at a field.
function hintOf(said, place) {
  const name = calledIn(said, place);
  const usual = isObject(said.default) || Array.isArray(said.default) ? `default: ${plain(said.default)}` : '';
  const about = typeof said.description === 'string' ? said.description : '';
  const isOwn = typeof said.title === 'string' && said.title.toLowerCase().replace(/[\s_-]/g, '') !== name.toLowerCase().replace(/[\s_-]/g, '');
  return visible([place.required ? 'required' : '', isOwn ? said.title : '', ...limitsOf(said), about.length > mostAbout ? `${about.slice(0, mostAbout)} …` : about, usual].filter(Boolean).join(' · '));
}

// A value with a single input element.
function simple(said, choices, place) {
  const { name, required, strict, root, changed, isBare } = place;
  const id = `field-${counter += 1}`;
  const hint = hintOf(said, place);
  const title = choices?.find((choice) => choice.text === JSON.stringify(said.default))?.title;
  const example = Array.isArray(said.examples) && said.examples.length ? visible(`such as ${plain(said.examples[0])}`).slice(0, 80) : '';
  const usual = said.default === undefined || said.default === null ? example : visible(`default: ${title ?? plain(said.default)}`);
  const made = fitting({ id, said, name: calledIn(said, place), required, strict, hint, usual, root }, choices);
  const jsonHint = makeJsonHint(id);
  const requiredHint = makeRequiredHint(id, calledIn(said, place));
  let given;
  let isTouched = false;
  const touch = () => { isTouched = true; jsonHint.show(undefined); requiredHint.show(''); changed(); };
  const attachInput = (input) => { input.addEventListener('input', touch); input.setAttribute('aria-describedby', `${jsonHint.box.id} ${requiredHint.box.id}`); requiredHint.at(input); };
  made.input.required = Boolean(strict && required);
  made.attachInput = attachInput;
  attachInput(made.input);
  // An unticked check box is an answer; constants and `null` need none.
  const unsaid = () => {
    if (required && (made.isFixed || strict && made.isWhole)) return made.read();
    return required && !strict && said.canBeNull ? 'null' : undefined;
  };
  const has = () => (isTouched ? made.read() : given) !== undefined;
  const get = (isNew) => {
    if (isTouched) return made.read() ?? (said.canBeNull ? unsaid() : undefined);
    return given ?? (isNew ? unsaid() : undefined);
  };
  const set = (text) => {
    given = text;
    isTouched = false;
    made.show(text);
    requiredHint.show('');
    jsonHint.show(text === undefined || isNothing(said, text) || shows(made, text) ? undefined : text);
  };
  const missing = () => { try { return requiredHint.ask(required && get(true) === undefined); } catch { return []; } };
  // The answer to a server request starts with the server's defaults, which count if nothing is changed.
  if (strict && said.default !== undefined) set(JSON.stringify(said.default));
  const label = make('label', { htmlFor: id }, isBare ? 'value' : calledIn(said, place), ' ', make('span', { className: 'hint', textContent: hint }));
  if (made.isWhole) made.input.append(jsonHint.box, requiredHint.box);
  return { box: made.isWhole ? made.input : make('div', { className: 'field' }, label, made.input, jsonHint.box, requiredHint.box), has, get, set, missing };
}

// Whether a field shows its value. Very long values are not compared.
function shows(made, text) {
  if (text.length > 100000) return true;
  try { const read = made.read(); return read === undefined ? text === '""' : sameness(read) === sameness(text); } catch { made.input.setCustomValidity(''); return false; }
}

// Fields for all members of an object. Members that the schema does not name are kept unchanged, and so is a value that
// should be an object and is not, until a field of it is edited.
function group(said, place) {
  const { name, required, changed } = place;
  const must = Array.isArray(said.required) ? said.required : [];
  let odd;
  const jsonHint = makeJsonHint(`field-${counter += 1}`);
  const touch = () => { odd = undefined; jsonHint.show(undefined); changed(); };
  const known = Object.entries(isObject(said.properties) ? said.properties : {});
  const members = new Map(known.map(([key, member]) => [key, field(member, { ...place, name: key, required: must.includes(key), changed: touch, isBare: false })]));
  const rest = isObject(said.additionalProperties) && Object.keys(said.additionalProperties).length ? rows({ additionalProperties: said.additionalProperties }, { ...place, name: name ? `${name}: others` : 'others', required: false, changed: touch, isBare: false }) : null;
  const box = framed(said, place, jsonHint.box, ...[...members.values(), rest].filter(Boolean).map((member) => member.box));
  let given = null;
  const all = () => [...members.values(), rest].filter(Boolean);
  const has = () => odd !== undefined || given !== null || all().some((member) => member.has());
  // An object that the form creates gets its required members; an existing one is not changed.
  const get = (isWithinNew = true) => {
    if (odd !== undefined) return odd;
    const isNew = given === null;
    if (!has() && !(required && isWithinNew)) return undefined;
    const others = rest ? rest.entries() : new Map([...(given ?? [])].filter(([key]) => !members.has(key)));
    const keys = new Set([...(given?.keys() ?? []), ...members.keys(), ...others.keys()]);
    return objectOf([...keys].map((key) => [key, members.has(key) ? members.get(key).get(isNew) : others.get(key)]));
  };
  const set = (text) => {
    const isObjectGiven = text !== undefined && isObjectText(text);
    odd = isObjectGiven ? undefined : text;
    jsonHint.show(odd !== undefined && isNothing(said, odd) ? undefined : odd);
    // Of two members with the same name, the last counts.
    given = isObjectGiven ? new Map(membersOf(text)) : null;
    members.forEach((member, key) => member.set(given?.get(key)));
    rest?.show(given === null ? undefined : [...given].filter(([key]) => !members.has(key)));
  };
  const missing = () => (odd === undefined && get(true) !== undefined ? all().flatMap((member) => member.missing()) : []);
  return { box, has, get, set, missing };
}

const objectOf = (entries) => `{${entries.filter(([, value]) => value !== undefined).map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(',')}}`;

// A frame with a name, unless the name is already shown.
function framed(said, place, ...parts) {
  if (place.isBare) return make('div', {}, ...parts);
  const hint = hintOf(said, place);
  return make('fieldset', {}, make('legend', { textContent: calledIn(said, place) }), hint ? make('p', { className: 'hint', textContent: hint }) : null, ...parts);
}

// A part that may be recursive: its fields are created on request, or if it has a value.
function later(create, place, said) {
  const { name, required } = place;
  const id = `field-${counter += 1}`;
  const requiredHint = makeRequiredHint(id, name);
  let inner = null;
  const button = make('button', { type: 'button', className: 'quiet small', textContent: 'Fill in', ariaLabel: `Fill in ${visible(name)}` });
  const box = make('div', { className: 'field' }, make('b', { textContent: visible(name) }), ' ', button, ' ', make('span', { className: 'hint', textContent: hintOf(said, place) }), requiredHint.box);
  requiredHint.at(button);
  const open = () => {
    inner = create({ ...place, depth: 0, room: { left: mostFields } });
    box.replaceChildren(inner.box);
  };
  button.addEventListener('click', () => { open(); focusIn(inner.box); place.changed(); });
  const set = (text) => {
    if (text !== undefined && !inner) open();
    inner?.set(text);
  };
  const missing = () => (inner ? inner.missing() : requiredHint.ask(required));
  return { box, set, missing, has: () => Boolean(inner?.has()), get: (isNew) => inner?.get(isNew) };
}

// Whether the value is `null`, and may be.
const isNothing = (said, text) => Boolean(said.canBeNull) && text === 'null';

const focusIn = (box) => box.querySelector('input, select, textarea, button')?.focus();
