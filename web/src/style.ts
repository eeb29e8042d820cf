// The look of everything that is not the map.

import { css } from "lit";

export const shared = css`
  :host { display: block; font: 14px/1.45 system-ui, sans-serif; color: var(--ink); }
  * { box-sizing: border-box; }
  h2 { font-size: 15px; margin: 14px 0 6px; }
  h2:first-child { margin-top: 0; }
  p { margin: 4px 0 8px; }
  small, .quiet { color: var(--quiet); font-size: 12.5px; }
  button, select, input, textarea { font: inherit; color: inherit; }
  button {
    background: var(--raised); border: 1px solid var(--edge); border-radius: 7px; padding: 5px 11px; cursor: pointer; min-height: 32px;
  }
  button:hover:not(:disabled) { border-color: var(--accent); }
  button:disabled { opacity: 0.55; cursor: default; }
  button[aria-pressed="true"], button.main { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
  button.plain { border: none; background: none; padding: 2px 4px; min-height: 26px; text-align: left; color: var(--link); }
  button.plain:hover { text-decoration: underline; }
  input, select, textarea { background: var(--field); border: 1px solid var(--edge); border-radius: 7px; padding: 5px 8px; min-height: 32px; width: 100%; }
  input[type="checkbox"], input[type="radio"] { width: auto; min-height: 0; margin: 0 5px 0 0; vertical-align: -2px; }
  input[type="range"] { padding: 0; }
  label { display: block; font-size: 12.5px; color: var(--quiet); margin: 8px 0 3px; }
  label.inline { display: inline-block; margin: 0 12px 0 0; color: var(--ink); }
  :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
  .row { display: flex; gap: 6px; flex-wrap: wrap; align-items: center; margin: 6px 0; }
  .row > .grow { flex: 1; min-width: 0; }
  a { color: var(--link); }
  ul { list-style: none; margin: 0; padding: 0; }
  li { padding: 4px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
  li:last-child { border-bottom: none; }
  .bad { color: var(--bad); }
  .good { color: var(--good); }
  .card { background: var(--raised); border: 1px solid var(--line); border-radius: 10px; padding: 10px 12px; margin: 0 0 10px; }
  code, pre { font: 12.5px/1.45 ui-monospace, monospace; }
  pre { background: var(--field); border: 1px solid var(--line); border-radius: 7px; padding: 8px; overflow-x: auto; margin: 6px 0; white-space: pre-wrap; overflow-wrap: anywhere; }
  table { border-collapse: collapse; width: 100%; }
  td, th { text-align: left; padding: 2px 8px 2px 0; vertical-align: top; font-weight: normal; }
  th { color: var(--quiet); }
  .said { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
`;
