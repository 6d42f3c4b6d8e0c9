// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A module: its kernels and variables by name.
#include <algorithm>

#include "code.hpp"

namespace software_gpu {

struct module::parts {
    code_of_module code;
};
namespace {
// The stack size of a thread that runs f and all its callees; a fixed limit where calls may nest without end.
std::uint32_t stack_of(const function& f, unsigned depth) {
    if (depth > 16) return 8 * 1024;
    std::uint32_t deepest = 0;
    for (const instruction& i : f.code)
        if (i.callee != nullptr) deepest = std::max(deepest, stack_of(*i.callee, depth + 1));
    return std::min((f.frame_bytes + 15) / 16 * 16 + deepest, 16u * 1024);
}
} // namespace
module::module(std::string_view ptx) :parts_(std::make_unique<parts>(parts{read_module(ptx)})) {
    for (auto& [name, f] : parts_->code.functions) f->stack_bytes = stack_of(*f, 0);
    for (auto& [name, f] : parts_->code.functions) {
        f->home = this;
        f->shared_bytes_of_module = parts_->code.shared_bytes;
    }
}
module::~module() = default;
const function* module::kernel(std::string_view name) const {
    const auto found = parts_->code.functions.find(name);
    return found != parts_->code.functions.end() && found->second->is_kernel ? found->second.get() : nullptr;
}
void* module::variable(std::string_view name, std::size_t& bytes) const {
    const auto found = parts_->code.globals.find(name);
    if (found == parts_->code.globals.end()) return nullptr;
    bytes = found->second.bytes;
    return found->second.begin;
}
bool module::holds(address at, std::size_t bytes) const {
    for (const auto& [name, g] : parts_->code.globals) {
        const auto begin = reinterpret_cast<std::uintptr_t>(g.begin);
        if (at >= begin && at - begin <= g.bytes && bytes <= g.bytes - (at - begin)) return true;
    }
    return false;
}
const kernel_facts& facts_of(const function& f) { return f.facts; }

} // namespace software_gpu
