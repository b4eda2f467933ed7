// Notes at a field: what the JSON contains that the field cannot show, and that the field is required.

function makeJsonHint(id) {
  const box = make('span', { className: 'hint kept', id: `${id}-kept`, hidden: true });
  const show = (text) => {
    box.hidden = text === undefined;
    box.textContent = box.hidden ? '' : visible(`in the JSON: ${text.length > 80 ? `${text.slice(0, 80)}…` : text}`);
  };
  return { box, show };
}

function makeRequiredHint(id, name, more = '') {
  const box = make('span', { className: 'hint kept lack', id: `${id}-lack`, hidden: true });
  let element = null;
  const show = (why) => {
    box.hidden = !why;
    box.textContent = why;
    // `aria-invalid` applies only to inputs, selects and text areas.
    if (why && /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName)) element.setAttribute('aria-invalid', 'true');
    else element.removeAttribute('aria-invalid');
  };
  // Shows or hides that the field is required, and returns the problem for the caller.
  const ask = (isLacking, why = `${visible(name)} is required${more}`) => {
    show(isLacking ? why : '');
    return isLacking ? [{ why, focus: () => (/^(FIELDSET|DIV)$/.test(element.tagName) ? focusIn(element) : element.focus()) }] : [];
  };
  return { box, show, ask, at: (it) => { element = it; } };
}
