import { render } from "preact";
import { isLive, parseReport } from "./records.js";
import { Report } from "./report.js";
import { View } from "./view.js";
import "uplot/dist/uPlot.min.css";
import "./style.css";

const text = document.getElementById("records")?.textContent ?? "null";
const place = document.getElementById("report")!;
if (isLive(text)) render(<View />, place);
else {
  const report = parseReport(text);
  render(typeof report === "string" ? <p class="empty">{report}</p> : <Report report={report} />, place);
}
