// Slots that JavaScript names by number. A handle is never a pointer: any number is looked up, and a stale or invalid
// one is not found.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace astra {

template <class T>
class HandleTable {
 public:
  struct Slot {
    T value{};
    uint32_t generation = 0;
    bool used = false;
    int64_t reportedBytes = 0;  // external memory that V8 was told of for this slot
  };

  double add(T value, int64_t reportedBytes = 0) {
    uint32_t index;
    if (free_.empty()) {
      index = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Slot& slot = slots_[index];
    slot.value = std::move(value);
    slot.used = true;
    slot.generation = (slot.generation + 1) & kGenerationMask;
    slot.reportedBytes = reportedBytes;
    ++live_;
    return static_cast<double>((static_cast<uint64_t>(slot.generation) << 32) | (index + 1ULL));
  }

  // Null if the handle is stale, released, or was never issued.
  Slot* find(double handle) {
    if (!(handle >= 1.0 && handle < 9007199254740992.0)) return nullptr;
    const uint64_t bits = static_cast<uint64_t>(handle);
    const uint64_t index = (bits & 0xffffffffULL) - 1;
    if (index >= slots_.size()) return nullptr;
    Slot& slot = slots_[index];
    return slot.used && slot.generation == (bits >> 32) ? &slot : nullptr;
  }

  // Moves the value out, so that its destructor runs outside of the table's bookkeeping.
  T take(Slot* slot) {
    T value = std::move(slot->value);
    slot->value = T{};
    slot->used = false;
    slot->reportedBytes = 0;
    free_.push_back(static_cast<uint32_t>(slot - slots_.data()));
    --live_;
    return value;
  }

  size_t live() const { return live_; }
  const std::vector<Slot>& slots() const { return slots_; }

 private:
  static constexpr uint32_t kGenerationMask = 0x1fffff;  // 21 bits: handles stay exact as doubles
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  size_t live_ = 0;
};

}  // namespace astra
