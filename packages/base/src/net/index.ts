export { refusalOf } from "./admission.js";
export { isLoopback, listen } from "./loopback.js";
