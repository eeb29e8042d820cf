// An editor for filters and patterns: completion of what was seen so far, errors under the text.

import { autocompletion, closeBrackets, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching } from "@codemirror/language";
import { forceLinting, linter, lintKeymap, type Diagnostic } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, placeholder } from "@codemirror/view";
import { css, html, LitElement } from "lit";
import type { City } from "./city";
import { ask, Refused } from "./server";
import { shared } from "./style";

const CQL = ["AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "TRUE", "FALSE"];
const CPSL = ["ARITH", "STRING", "SET", "CQL"];

export interface Checked {
  ok: boolean;
  normal?: string;
  detail?: string;
  line?: number | null;
  column?: number | null;
  length?: number | null;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  graph?: any;
}

/** `checked` is fired with what the server says of the text. */
export class NearEditor extends LitElement {
  static override properties = { language: {}, label: {}, hint: {} };
  static override styles = [shared, css`
    .box { border: 1px solid var(--edge); border-radius: 7px; background: var(--field); }
    .box .cm-editor { border-radius: 7px; }
    .box:focus-within { outline: 2px solid var(--accent); outline-offset: 1px; }
    .verdict { min-height: 20px; font-size: 12.5px; margin-top: 3px; overflow-wrap: anywhere; }
  `];
  declare language: "cql" | "cpsl";
  declare label: string;
  declare hint: string;
  city!: City;
  checked: Checked = { ok: true };
  private view: EditorView | null = null;
  private start = "";

  get value(): string {
    return this.view?.state.doc.toString() ?? this.start;
  }

  set value(text: string) {
    this.start = text;
    this.view?.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  override render() {
    const bad = !this.checked.ok;
    return html`<label id="label">${this.label}</label>
      <div class="box"></div>
      <div class="verdict ${bad ? "bad" : "quiet"}" role="status" aria-live="polite">${bad ? this.checked.detail?.split("\n")[0] : this.checked.normal && this.language === "cql" ? `reads as ${this.checked.normal}` : ""}</div>`;
  }

  override firstUpdated(): void {
    const theme = EditorView.theme({
      "&": { fontSize: "13px", backgroundColor: "var(--field)", color: "var(--ink)" },
      ".cm-content": { fontFamily: "ui-monospace, monospace", minHeight: this.language === "cpsl" ? "84px" : "34px", caretColor: "var(--ink)" },
      "&.cm-focused": { outline: "none" },
      ".cm-placeholder": { color: "var(--quiet)" },
      ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--ink)", border: "1px solid var(--edge)" },
      ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
      ".cm-cursor": { borderLeftColor: "var(--ink)" },
    });
    this.view = new EditorView({
      root: this.renderRoot as ShadowRoot,
      parent: this.renderRoot.querySelector(".box")!,
      state: EditorState.create({
        doc: this.start,
        extensions: [
          history(), bracketMatching(), closeBrackets(), theme, EditorView.lineWrapping, placeholder(this.hint ?? ""),
          autocompletion({ override: [(context) => this.complete(context)] }),
          linter((view) => this.lint(view), { delay: 250 }),
          keymap.of([...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap]),
          EditorView.contentAttributes.of({ "aria-label": this.label ?? "" }),
        ],
      }),
    });
    if (this.start) forceLinting(this.view);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.start = this.value;
    this.view?.destroy();
    this.view = null;
  }

  private complete(context: CompletionContext): CompletionResult | null {
    const seen = this.city?.vocabulary ?? new Map<string, Set<string>>();
    const before = context.state.sliceDoc(0, context.pos);
    const asked = /([A-Za-z_][\w.]*)\s*(?:=|<>|!=|<=|>=|<|>|IN\s*\(|LIKE)\s*(['"]?[^'"\s()]*)$/i.exec(before);
    if (asked && seen.has(asked[1])) {
      const options = [...seen.get(asked[1])!].map((said) => ({ label: this.language === "cpsl" ? quoted(said) : said, type: "constant" }));
      return { from: context.pos - asked[2].length, options, filter: true };
    }
    const word = context.matchBefore(/[A-Za-z_][\w.]*/);
    if (!word && !context.explicit) return null;
    const names = [...seen.keys()].map((label) => ({ label, type: "property", detail: [...seen.get(label)!].slice(0, 3).join(" ") }));
    const words = (this.language === "cpsl" ? CPSL : CQL).map((label) => ({ label, type: "keyword" }));
    return { from: word ? word.from : context.pos, options: [...names, ...words], validFor: /^\w*$/ };
  }

  private async lint(view: EditorView): Promise<Diagnostic[]> {
    const text = view.state.doc.toString();
    let found: Checked = { ok: true };
    if (text.trim()) {
      try {
        found = await ask<Checked>("POST", "/v1/check", this.language === "cpsl" ? { cpsl: text } : { where: text });
      } catch (error) {
        found = { ok: false, detail: error instanceof Refused ? error.message : String(error) };
      }
    }
    if (text !== view.state.doc.toString()) return [];
    this.checked = found;
    this.requestUpdate();
    this.dispatchEvent(new CustomEvent("checked", { detail: found }));
    if (found.ok) return [];
    const { doc } = view.state;
    const line = doc.line(Math.min(doc.lines, Math.max(1, found.line ?? 1)));
    const from = Math.min(doc.length, line.from + Math.max(0, (found.column ?? 1) - 1));
    const to = Math.min(doc.length, from + Math.max(1, found.length ?? 1));
    return [{ from: Math.min(from, Math.max(0, to - 1)), to, severity: "error", message: found.detail ?? "not right" }];
  }
}
customElements.define("near-editor", NearEditor);

/** A value as CPSL writes it, which has text in double quotes. */
function quoted(said: string): string {
  return said.startsWith("'") ? JSON.stringify(said.slice(1, -1).replaceAll("''", "'")) : said;
}
