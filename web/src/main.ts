import "./page.css";
import "./now";
import "./follow";
import "./figures";
import "./time";
import { NearApp } from "./app";

customElements.define("near-app", NearApp);
