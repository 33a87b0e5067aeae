/** The part of a tensor that the interfaces here rely on; every `Tensor` of the engine has it. */
export interface Tensor {
  readonly shape: readonly number[];
  readonly dtype: string;
  readonly device: string;
  readonly requiresGrad: boolean;
  toTypedArray(): ArrayLike<number> | ArrayLike<bigint>;
  detach(): Tensor;
  dispose(): void;
}
