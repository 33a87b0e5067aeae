/** A select element with a label. */
export function Choice<T extends string | number>({
  name,
  value,
  options,
  onChange,
  isWide = false,
}: {
  name: string;
  value: T;
  options: readonly (readonly [value: T, text: string])[];
  onChange: (value: T) => void;
  isWide?: boolean;
}) {
  return (
    <label class={isWide ? "wide" : ""}>
      {name}
      <select
        value={String(value)}
        onChange={({ currentTarget }) => onChange(options[currentTarget.selectedIndex]![0])}
      >
        {options.map(([each, text]) => (
          <option value={String(each)}>{text}</option>
        ))}
      </select>
    </label>
  );
}

/** A checkbox with a label. */
export function Tick({
  name,
  checked,
  onChange,
  kind = "check",
}: {
  name: string;
  checked: boolean;
  onChange: (checked: boolean) => void;
  /** Classes of the style sheet. */
  kind?: string;
}) {
  return (
    <label class={kind}>
      <input
        type="checkbox"
        checked={checked}
        onChange={({ currentTarget }) => onChange(currentTarget.checked)}
      />
      {name}
    </label>
  );
}
