// Maps: the user chooses the names, each with a value.

// Rows of names and values. `show` takes pairs of a name and JSON, `entries` returns them.
function rows(said, place) {
  const { name, changed } = place;
  const schema = isObject(said.additionalProperties) ? said.additionalProperties : Object.values(isObject(said.patternProperties) ? said.patternProperties : {})[0] ?? {};
  let items = [];
  const touch = () => { requiredHint.show(''); changed(); };
  const number = () => items.forEach((item, at) => item.call(visible(`${name || 'entry'} ${at + 1}`)));
  const put = () => {
    const id = `field-${counter += 1}`;
    const key = make('input', { id, type: 'text', autocomplete: 'off', spellcheck: false });
    const unnamed = makeRequiredHint(id, 'its name');
    unnamed.at(key);
    key.setAttribute('aria-describedby', unnamed.box.id);
    const member = field(schema, { ...place, name: 'value', required: true, changed: touch, depth: 0, room: { left: mostFields }, isBare: false });
    const naming = make('div', { className: 'field' }, make('label', { htmlFor: id, textContent: 'name' }), key, unnamed.box);
    const item = { key, unnamed, member, isNamed: false, ...entry([naming, member.box], () => {
      items = items.filter((other) => other !== item);
      item.box.remove();
      number();
      touch();
      add.focus();
    }) };
    key.addEventListener('input', () => { item.isNamed = key.value !== ''; unnamed.show(''); touch(); });
    items.push(item);
    inside.append(item.box);
    return item;
  };
  const { box, inside, add, jsonHint, requiredHint } = gathered(said, place, () => {
    const item = put();
    number();
    touch();
    item.key.focus();
  });
  const entries = () => new Map(items.filter((item) => item.isNamed).map((item) => [item.key.value, item.member.get(true)]));
  const show = (pairs = []) => {
    items.splice(pairs.length).forEach((item) => item.box.remove());
    pairs.forEach(([key, value], at) => {
      const item = items[at] ?? put();
      item.key.value = key;
      item.isNamed = true;
      item.unnamed.show('');
      item.member.set(value);
    });
    number();
    requiredHint.show('');
  };
  const missing = () => items.flatMap((item) => {
    const isTwice = items.some((other) => other !== item && other.isNamed && item.isNamed && other.key.value === item.key.value);
    const own = isTwice ? item.unnamed.ask(true, `${visible(item.key.value)} occurs twice`) : item.unnamed.ask(!item.isNamed);
    return [...own, ...item.member.missing()];
  });
  return { box, add, jsonHint, requiredHint, entries, show, missing, has: () => items.length > 0 };
}

// An object that consists of such rows.
function map(said, place) {
  const { required } = place;
  let odd;
  let isThere = false;
  const all = rows(said, { ...place, changed: () => { odd = undefined; isThere = true; all.jsonHint.show(undefined); place.changed(); } });
  const has = () => odd !== undefined || isThere;
  const get = (isNew) => {
    if (odd !== undefined) return odd;
    if (!isThere) return isNew && required && said.canBeNull ? 'null' : undefined;
    return objectOf([...all.entries()]);
  };
  const set = (text) => {
    // Of two members with the same name, the last counts.
    const pairs = text !== undefined && isObjectText(text) ? [...new Map(membersOf(text))] : null;
    const isShown = pairs !== null && pairs.length <= mostItems;
    isThere = isShown;
    odd = isShown ? undefined : text;
    all.add.hidden = pairs !== null && !isShown;
    all.show(isShown ? pairs : []);
    all.jsonHint.show(odd !== undefined && isNothing(said, odd) ? undefined : odd);
  };
  const missing = () => [...all.requiredHint.ask(required && get(true) === undefined), ...(odd === undefined ? all.missing() : [])];
  return { box: all.box, has, get, set, missing };
}
