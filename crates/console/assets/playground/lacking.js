// Words at a field: what the JSON holds that the field cannot show, and that it must be filled in.

function keeping(id) {
  const box = make('span', { className: 'hint kept', id: `${id}-kept`, hidden: true });
  const show = (text) => {
    box.hidden = text === undefined;
    box.textContent = box.hidden ? '' : visible(`in the JSON: ${text.length > 80 ? `${text.slice(0, 80)}…` : text}`);
  };
  return { box, show };
}

function lacking(id, name, more = '') {
  const box = make('span', { className: 'hint kept lack', id: `${id}-lack`, hidden: true });
  let element = null;
  const show = (why) => {
    box.hidden = !why;
    box.textContent = why;
    // Only what is typed into or chosen from can be wrong to those who do not see the page.
    if (why && /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName)) element.setAttribute('aria-invalid', 'true');
    else element.removeAttribute('aria-invalid');
  };
  // Says that something must be filled in, or no longer; gives what whoever wants to run it is told.
  const ask = (isLacking, why = `${visible(name)} is required${more}`) => {
    show(isLacking ? why : '');
    return isLacking ? [{ why, focus: () => (/^(FIELDSET|DIV)$/.test(element.tagName) ? focusIn(element) : element.focus()) }] : [];
  };
  return { box, show, ask, at: (it) => { element = it; } };
}
