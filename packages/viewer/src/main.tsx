import { render } from "preact";
import { parseReport } from "./records.js";
import { Report } from "./report.js";
import "uplot/dist/uPlot.min.css";
import "./style.css";

const report = parseReport(document.getElementById("records")?.textContent ?? "null");
const place = document.getElementById("report")!;
render(typeof report === "string" ? <p class="empty">{report}</p> : <Report report={report} />, place);
