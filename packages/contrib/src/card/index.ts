export { testerCard, type TesterCardSource } from "./tester-card.js";
