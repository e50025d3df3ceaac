// The script of reports: draws what their tables hold. Everything is there to be read without it.

import { drawBars, shadeCells } from "./charts.js";
import { drawCurves } from "./curves.js";
import { drawEmbeddingMap } from "./embedding.js";

document.querySelectorAll("figure.curves").forEach(drawCurves);
document.querySelectorAll(".bars table").forEach(drawBars);
document.querySelectorAll("table[data-shade]").forEach(shadeCells);
document.querySelectorAll("#embedding-map").forEach(drawEmbeddingMap);
document.body.dataset.ready = "report";
