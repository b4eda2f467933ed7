// Content that is not text: images are shown, audio is played, and everything can be saved. Nothing else is opened here: a
// vector image or a page could contain a program.

const pictures = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const sounds = ['audio/mpeg', 'audio/mp3', 'audio/mp4', 'audio/aac', 'audio/ogg', 'audio/flac', 'audio/wav', 'audio/x-wav', 'audio/wave', 'audio/webm'];
const endings = { 'image/jpeg': 'jpg', 'image/svg+xml': 'svg', 'audio/mpeg': 'mp3', 'audio/x-wav': 'wav', 'text/plain': 'txt', 'application/gzip': 'gz', 'application/octet-stream': 'bin' };

const isBase64 = (text) => typeof text === 'string' && /^[A-Za-z0-9+/=\s]*$/.test(text);
const bytes = (count) => (count < 1024 ? `${count} B` : count < 1048576 ? `${(count / 1024).toFixed(1)} KB` : `${(count / 1048576).toFixed(1)} MB`);

function media(data, mimeType, kind, uri) {
  const type = String(mimeType ?? '').toLowerCase();
  const parts = [];
  if (pictures.includes(type)) parts.push(make('img', { src: `data:${type};base64,${data}`, alt: 'image returned by the tool' }));
  if (sounds.includes(type)) parts.push(make('audio', { src: `data:${type};base64,${data}`, controls: true, ariaLabel: 'sound returned by the tool' }));
  return make('div', {}, ...parts, make('p', {}, saving(data, type, kind, uri)));
}

// A button that saves the content. It is decoded only then, because it may be large.
function saving(data, type, kind, uri) {
  const count = Math.floor(data.replace(/[\s=]/g, '').length * 3 / 4);
  const button = make('button', { type: 'button', className: 'quiet small', textContent: `Save (${visible(type || 'file').slice(0, 80)}, ${bytes(count)})` });
  button.addEventListener('click', () => {
    let content;
    try { content = Uint8Array.from(atob(data.replace(/\s/g, '')), (letter) => letter.charCodeAt(0)); } catch { button.textContent = 'The file is damaged and cannot be saved'; return; }
    // The browser must store the file, not open it, whatever its type.
    const href = URL.createObjectURL(new Blob([content], { type: 'application/octet-stream' }));
    make('a', { href, download: fileName(type, kind, uri) }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60000);
  });
  return button;
}

// The last part of its address, if that is a file name; otherwise a name made from its type.
function fileName(type, kind, uri) {
  const last = String(uri ?? '').split(/[?#]/)[0].split('/').pop();
  if (/^[\w][\w.-]{0,80}\.\w{1,8}$/.test(last)) return last;
  const ending = endings[type] ?? (/^\w+\/([a-z0-9]{1,8})$/.exec(type)?.[1] ?? 'bin');
  return `${kind}.${ending}`;
}
