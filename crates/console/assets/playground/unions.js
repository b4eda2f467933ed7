// A value that has one of several types: the user first chooses the type, then fills it in.

function union(said, branches, place) {
  const { name, required, changed } = place;
  const id = `field-${counter += 1}`;
  const jsonHint = makeJsonHint(id);
  const requiredHint = makeRequiredHint(id, name || 'what it is');
  const select = make('select', { id }, make('option', { value: '', textContent: required && !said.canBeNull ? 'please choose' : '–' }));
  branches.forEach(({ title }, at) => select.append(make('option', { value: String(at), textContent: visible(title) })));
  select.setAttribute('aria-describedby', `${jsonHint.box.id} ${requiredHint.box.id}`);
  requiredHint.at(select);
  const inside = make('div', { className: 'branch' });
  const label = make('label', { htmlFor: id }, visible(place.isBare ? 'what it is' : name), ' ', make('span', { className: 'hint', textContent: hintOf(said, place) }));
  const box = make('div', { className: 'field' }, label, select, jsonHint.box, requiredHint.box, inside);
  // Values entered for one type are kept while another is chosen.
  const made = new Map();
  let odd;
  const touch = () => { odd = undefined; jsonHint.show(undefined); requiredHint.show(''); changed(); };
  const chosen = () => {
    if (select.value === '') return null;
    const at = Number(select.value);
    if (!made.has(at)) made.set(at, field(branches[at].said, { ...place, name: branches[at].title, required: true, changed: touch, depth: 0, room: { left: mostFields }, isBare: isObjectSchema(branches[at].said) && hasMembers(branches[at].said) }));
    return made.get(at);
  };
  const turn = () => inside.replaceChildren(...[chosen()?.box].filter(Boolean));
  select.addEventListener('input', () => { turn(); touch(); });
  const has = () => odd !== undefined || select.value !== '';
  const get = (isNew) => odd ?? (select.value === '' ? isNew && required && said.canBeNull ? 'null' : undefined : chosen().get(true));
  const set = (text) => {
    const at = text === undefined || text === 'null' ? -1 : likest(branches, JSON.parse(text), select.value === '' ? -1 : Number(select.value));
    // Empty arguments do not decide the type.
    odd = at < 0 && !(name === '' && text === '{}') ? text : undefined;
    select.value = at < 0 ? '' : String(at);
    turn();
    if (at >= 0) chosen().set(text);
    requiredHint.show('');
    jsonHint.show(odd !== undefined && isNothing(said, odd) ? undefined : odd);
  };
  const missing = () => [...requiredHint.ask(required && odd === undefined && select.value === '' && !said.canBeNull), ...(odd === undefined ? chosen()?.missing() ?? [] : [])];
  return { box, has, get, set, missing };
}

// The type that matches a value best; if two match equally, the one already chosen.
function likest(branches, value, now) {
  let best = -1;
  let most = -Infinity;
  const all = branches.map(({ said, root }) => alike(said, value, root));
  // An empty value matches every type.
  if (isObject(value) && !Object.keys(value).length && all.filter((likeness) => likeness !== null).length > 1) return (all[now] ?? null) === null ? -1 : now;
  all.forEach((likeness, at) => {
    if (likeness !== null && (likeness > most || likeness === most && at === now)) [best, most] = [at, likeness];
  });
  return best;
}

// How well a value matches a schema; null if it cannot match.
function alike(said, value, root) {
  const choices = choicesOf(said);
  if (choices) return choices.some((choice) => choice.text === JSON.stringify(value)) ? 3 : null;
  if (isObjectSchema(said)) {
    if (!isObject(value)) return null;
    const known = isObject(said.properties) ? said.properties : {};
    const isOther = Object.entries(known).some(([key, member]) => key in value && choicesOf(meant(member, root))?.every((choice) => choice.text !== JSON.stringify(value[key])));
    if (isOther) return null;
    const absent = (Array.isArray(said.required) ? said.required : []).filter((key) => !(key in value)).length;
    const named = Object.keys(value).filter((key) => key in known).length;
    return named - (hasMembers(said) ? Object.keys(value).length - named : 0) - 2 * absent;
  }
  if (kindOf(said) === 'array') {
    if (!Array.isArray(value)) return null;
    return value.length && isObject(said.items) && alike(meant(said.items, root), value[0], root) === null ? null : 1;
  }
  const kinds = kindsOf(said, root);
  return isOfKind(value, kinds) ? (kinds.length ? 1 : 0) : null;
}
