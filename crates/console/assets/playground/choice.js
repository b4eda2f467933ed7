// The box in which a tool is chosen: its list contains the tools that match the typed text.

const toolBox = document.querySelector('input[list=tools]');
let suggesting = null;
toolBox?.addEventListener('input', async () => {
  suggesting?.abort();
  suggesting = new AbortController();
  const part = toolBox.value;
  try {
    const response = await fetch(`/playground/tools?${new URLSearchParams({ part })}`, { signal: suggesting.signal });
    if (!response.ok || response.redirected) return;
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
    if (part === toolBox.value) document.getElementById('tools').replaceChildren(...fresh.querySelectorAll('option'));
  } catch { /* somebody types on, or the service is away: the list stays as it is */ }
});
