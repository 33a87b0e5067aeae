/**
 * Identifies common file types that are passed instead of safetensors, with a remedy; null if the first bytes are not
 * recognized.
 *
 * Call this only after the file failed to parse as safetensors: 0x80 is also the low byte of a valid header length.
 * @param start the first bytes of the file, at least 64 if it is that long
 */
export function explainForeignFormat(start: Uint8Array): string | null {
  const isZip = [0x50, 0x4b, 0x03, 0x04].every((byte, index) => start[index] === byte);
  const isPickle = start[0] === 0x80 && start[1] !== undefined && start[1] >= 2 && start[1] <= 5;
  if (isZip || isPickle) {
    return (
      "these are pickled weights (PyTorch's own format) under a name of safetensors; name the file " +
      "pytorch_model.bin, or convert it in Python with transformers: " +
      "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER, safe_serialization=True)"
    );
  }
  const text = String.fromCharCode(...start.subarray(0, 64));
  if (text.startsWith("version https://git-lfs")) {
    return "this is a Git LFS pointer, not the weights themselves; run `git lfs pull` in its repository";
  }
  if (/^\s*<(!doctype|html)/i.test(text)) {
    return "this is a web page, not weights; the download was answered with an error page";
  }
  if (text.startsWith("GGUF")) {
    return "this is a GGUF file; give the model's safetensors checkpoint instead";
  }
  return null;
}
