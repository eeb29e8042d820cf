import{a as e,i as t,o as n,s as r}from"./widgets.js";import{d as i,n as a,t as o}from"./index.js";import{t as s}from"./editor.js";var c=`Q(2)(STRING: category = "coffee")`,l=17,u=9,d=1500,f=640,p=class extends a{constructor(...e){super(...e),this.listens=[`things`],this.counts=[],this.lit=[],this.text=``}static{this.properties={...a.properties,graph:{state:!0},shown:{state:!0},right:{state:!0}}}static{this.styles=[o,r`
    .graph { overflow: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--field); margin: 8px 0; max-height: 340px; }
    svg { display: block; margin: auto; }
    svg.fits { max-width: 100%; height: auto; }
    text { font: 12px ui-monospace, monospace; fill: var(--ink); }
    .name { font-weight: bold; fill: var(--warn); } .role { font-size: 10px; fill: var(--quiet); } .count { font-size: 10.5px; font-weight: bold; fill: var(--accent); }
    .edge { fill: none; stroke: var(--quiet); stroke-width: 1.3; }
    rect { fill: var(--raised); stroke: var(--edge); stroke-width: 1.2; }
    rect.event { stroke: #2563eb; } rect.negation { stroke: #dc2626; stroke-dasharray: 4 3; } rect.root { stroke-width: 2.6; }
    rect.lit { fill: color-mix(in srgb, #f59e0b 55%, var(--raised)); stroke: #d97706; }
  `]}firstUpdated(){this.graph=null,this.shown=``,this.city.addEventListener(`lamps`,()=>this.light()),this.city.addEventListener(`again`,()=>this.watch())}render(){return this.desk?e`
      <near-editor language="cpsl" label="Pattern (CPSL)" hint=${c} .city=${this.city} @checked=${e=>this.checked(e.detail)}></near-editor>
      ${this.graph?this.drawn(this.graph):e`<p class="quiet">Events in time and space, combined: ${c} is told of every two coffees. <button class="plain" @click=${()=>this.example()}>Try it</button> · <a href="/docs" target="_blank" rel="noopener">all that can be asked</a></p>`}
      <div class="row">
        <div class="grow"><label for="subscriber">Told</label><input id="subscriber" value="me" /></div>
        <div class="grow"><label for="id">Name</label><input id="id" value="map-pattern" /></div>
      </div>
      <div class="row"><button class="main" ?disabled=${!this.right} @click=${()=>void this.begin()}>Detect it</button></div>
      ${this.said()}
      ${s(()=>this.call(),this.shown,e=>this.shown=e)}
      <h2>Patterns that stand</h2>
      ${this.city.things.composite.size?e`<ul>${[...this.city.things.composite.values()].map(t=>e`<li><button class="plain" @click=${()=>this.open(t.text)}>${t.id}</button> <small>${t.subscriber??``}</small></li>`)}</ul>`:e`<p class="quiet">None.</p>`}`:t}get editor(){return this.renderRoot.querySelector(`near-editor`)}example(){this.open(c)}open(e){this.editor.value=e}checked(e){let t=this.editor.value;this.right=e.ok&&t.trim()!==``,this.graph=this.right?e.graph:null,t!==this.text&&(this.text=t,this.watch())}watch(){this.counts=[],this.lit=[],this.city.watch.lamps(this.right?this.text:null)}light(){let e=performance.now();this.city.lamps.forEach((t,n)=>{t>(this.counts[n]??0)&&(this.lit[n]=e)}),this.counts=[...this.city.lamps],this.requestUpdate(),setTimeout(()=>this.requestUpdate(),1550)}drawn(r){let i=performance.now();return e`<div class="graph" tabindex="0" role="group" aria-label="Detection graph">
      <svg width=${r.width} height=${r.height} class=${r.width>f?``:`fits`} viewBox="0 0 ${r.width} ${r.height}" role="img" aria-label=${`The detection graph of ${r.boxes.length} nodes`}>
        ${r.boxes.map(e=>e.operands.map(([t,n])=>m(r.boxes[t],e,n)))}
        ${r.boxes.map((e,r)=>n`<g>
          <rect x=${e.x} y=${e.y} width=${e.width} height=${e.height} rx="6" class="${e.kind} ${r?``:`root`} ${i-(this.lit[r]??-1/0)<d?`lit`:``}"></rect>
          ${e.names.length?n`<text class="name" x=${e.x+e.width/2} y=${e.y+u+11} text-anchor="middle">${e.names.join(` `)}</text>`:t}
          ${e.lines.map((t,r)=>n`<text x=${e.x+e.width/2} y=${e.y+u+11+l*(r+ +!!e.names.length)} text-anchor="middle">${t}</text>`)}
          ${this.counts[r]?n`<text class="count" x=${e.x+e.width-4} y=${e.y-3} text-anchor="end">${this.counts[r]}×</text>`:t}
        </g>`)}
      </svg></div>`}call(){let e=e=>this.renderRoot.querySelector(`#${e}`).value.trim(),t=e(`id`)||`map-pattern`;return{method:`PUT`,path:`/v1/composites/${encodeURIComponent(t)}`,body:{id:t,subscriber:e(`subscriber`)||`me`,text:this.editor.value}}}async begin(){await this.attempt(async()=>{let{method:e,path:t,body:n}=this.call(),r=await i(e,t,n);return`${r.id} ${r.created?`is detected from now on`:`was replaced`}`})}};customElements.define(`near-patterns`,p);function m(e,r,i){let[a,o]=[e.x+e.width/2,e.y],[s,c]=[r.x+r.width/2,r.y+r.height],l=(o-c)/2;return n`<path class="edge" d="M${a} ${o} C${a} ${o-l} ${s} ${c+l} ${s} ${c}"></path>
    ${i?n`<text class="role" x=${(a+s)/2+6} y=${(o+c)/2}>${i}</text>`:t}`}export{p as NearPatterns};