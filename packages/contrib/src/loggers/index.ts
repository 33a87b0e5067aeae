export { MLflowLogger, mlflowKind, type MLflowLoggerOptions } from "./mlflow-logger.js";
export { TensorBoardLogger, tensorBoardKind } from "./tensorboard-logger.js";
export {
  WandbLogger,
  type WandbLoggerOptions,
  type WandbRun,
  type WandbSdk,
  wandbKind,
} from "./wandb-logger.js";
