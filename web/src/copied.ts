// "Copy as curl / Python", with the text to see.

import { html, nothing } from "lit";
import { curl, python, type Call } from "./copy";

export function copied(call: () => Call, shown: string, show: (text: string) => void) {
  const take = async (text: string) => {
    show(text);
    await navigator.clipboard?.writeText(text).catch(() => undefined); // it can be read and copied by hand
  };
  return html`<div class="row"><small>Copy as</small>
      <button @click=${() => void take(curl(call()))}>curl</button>
      <button @click=${() => void take(python(call()))}>Python</button></div>
    ${shown ? html`<pre data-testid="copied" tabindex="0">${shown}</pre>` : nothing}`;
}
