// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "code.hpp"

namespace software_gpu {
namespace {

std::uint32_t rounded(std::uint64_t x, std::uint64_t step) {
    return static_cast<std::uint32_t>((x + step - 1) / step * step);
}

// ".align 8 .b8 name[40]" without the rest of the line.
struct declared {
    std::string name;
    std::uint32_t align = 1, bytes = 0;
    bool has_no_size = false; // name[]
};

class reader {
public:
    explicit reader(std::string_view text) : in_(text) {}

    code_of_module all() {
        while (!in_.ended()) {
            if (in_.is(".version") || in_.is(".address_size")) skip_directive();
            else if (in_.take_if(".target")) read_target();
            else if (in_.is(".section")) {
                in_.take();
                in_.take();
                in_.skip_braces();
            } else if (in_.is(".visible") || in_.is(".weak") || in_.is(".common")) in_.take();
            else if (in_.take_if(".extern")) is_extern_ = true;
            else if (in_.is(".global") || in_.is(".const")) {
                in_.take();
                read_global();
            } else if (in_.take_if(".shared")) read_shared();
            else if (in_.take_if(".entry")) read_function(true);
            else if (in_.take_if(".func")) read_function(false);
            else if (in_.take_if(".pragma")) in_.skip_behind(";");
            else in_.fail("'" + std::string(in_.now()) + "' is not read");
        }
        for (auto& [name, f] : module_.functions) link(*f);
        for (auto& [name, f] : module_.functions) count_shared(*f);
        return std::move(module_);
    }

private:
    // ------------------------------------------------------------------------------------------ directives
    void skip_directive() {
        in_.take();
        in_.take();
        while (in_.take_if(",")) in_.take();
    }
    void read_target() { // sm_90, sm_90a, ...
        const std::string name(in_.take());
        if (!name.starts_with("sm_")) in_.fail("'" + name + "' is no target");
        arch_ = std::atoi(name.c_str() + 3);
        while (in_.take_if(",")) in_.take();
    }
    // ------------------------------------------------------------------------------------------ variables
    std::int64_t whole() {
        const bool minus = in_.take_if("-");
        const auto x = constant(in_.take());
        return minus ? -static_cast<std::int64_t>(x) : static_cast<std::int64_t>(x);
    }
    declared read_declared() {
        declared d;
        while (in_.is(".align") || in_.is(".ptr") || in_.now().starts_with(".")) {
            if (in_.take_if(".align")) {
                d.align = static_cast<std::uint32_t>(whole());
                continue;
            }
            const type t = type_of(in_.take().substr(1));
            if (t == type::none) continue; // .ptr, .global: hints of the compiler
            d.bytes = static_cast<std::uint32_t>(bytes_of(t));
            d.align = std::max(d.align, d.bytes);
        }
        d.name = in_.take();
        if (in_.take_if("[")) {
            if (in_.is("]")) d.has_no_size = true;
            else d.bytes *= static_cast<std::uint32_t>(whole());
            in_.expect("]");
        }
        return d;
    }
    void read_global() {
        const bool is_extern = std::exchange(is_extern_, false);
        const std::size_t begin = in_.at();
        declared d = read_declared();
        const std::size_t unit = width_named_in(in_.text(begin, in_.at()));
        if (is_extern) in_.fail("variable " + d.name + " lies in another module");
        global_variable& g = module_.globals[d.name];
        g.bytes = d.bytes;
        g.storage = std::make_unique<std::byte[]>(d.bytes + 256);
        g.begin = g.storage.get();
        while (reinterpret_cast<std::uintptr_t>(g.begin) % 256 != 0) ++g.begin;
        std::size_t at = 0;
        const auto put = [&] {
            const std::uint64_t x = static_cast<std::uint64_t>(whole());
            if (at + unit > g.bytes) in_.fail("too many values for " + d.name);
            std::memcpy(g.begin + at, &x, unit);
            at += unit;
        };
        if (in_.take_if("=")) {
            if (in_.take_if("{")) {
                do put();
                while (in_.take_if(","));
                in_.expect("}");
            } else {
                put();
            }
        }
        in_.expect(";");
    }
    static std::size_t width_named_in(std::string_view text) {
        for (const auto& [word, bytes] : {std::pair{".b8", 1},
                                          {".u8", 1},
                                          {".s8", 1},
                                          {".b16", 2},
                                          {".u16", 2},
                                          {".b32", 4},
                                          {".u32", 4},
                                          {".s32", 4},
                                          {".f32", 4}})
            if (text.find(word) != text.npos) return static_cast<std::size_t>(bytes);
        return 8;
    }
    void read_shared() {
        is_extern_ = false;
        const declared d = read_declared();
        in_.expect(";");
        shared_variable v{d.name, 0, d.bytes, d.has_no_size || d.bytes == 0};
        if (!v.is_dynamic) {
            v.offset = rounded(module_.shared_bytes, std::max(d.align, 16u));
            module_.shared_bytes = v.offset + v.bytes;
        }
        module_.shared.push_back(v);
    }

    // ------------------------------------------------------------------------------------------ functions
    void read_function(bool is_kernel) {
        is_extern_ = false;
        std::vector<declared> results, parameters;
        if (in_.is("(")) results = read_list();
        const std::string name(in_.take());
        if (in_.is("(")) parameters = read_list();
        while (!in_.is("{") && !in_.is(";")) read_limit(name);
        auto& held = module_.functions[name];
        if (!held) held = std::make_unique<function>();
        f_ = held.get();
        f_->name = name;
        f_->is_kernel = is_kernel;
        f_->facts.max_threads = max_threads_;
        f_->facts.arch = arch_;
        max_threads_ = 1024;
        if (in_.take_if(";")) return; // a declaration only
        scopes_.assign(1, {});
        labels_.clear();
        jumps_.clear();
        std::uint32_t at = 0;
        for (const declared& d : parameters) {
            const std::uint32_t offset = is_kernel ? rounded(at, d.align) : add_to_frame(d);
            if (is_kernel) {
                at = offset + d.bytes;
                f_->facts.parameter_offsets.push_back(offset);
                f_->facts.parameter_sizes.push_back(d.bytes);
            }
            f_->parameters.push_back({offset, d.bytes});
            scopes_.back().variables[d.name] = {is_kernel ? place::origin::kernel_parameters : place::origin::frame,
                                                offset, d.bytes};
        }
        f_->facts.parameter_bytes = at;
        for (const declared& d : results) {
            const std::uint32_t offset = add_to_frame(d);
            f_->results.push_back({offset, d.bytes});
            scopes_.back().variables[d.name] = {place::origin::frame, offset, d.bytes};
        }
        in_.expect("{");
        for (int depth = 1; depth > 0;) {
            if (in_.take_if("{")) {
                ++depth;
                scopes_.emplace_back();
            } else if (in_.take_if("}")) {
                --depth;
                depth > 0 ? scopes_.pop_back() : void();
            } else read_statement();
        }
        instruction last; // ends a body that has no final return
        last.next = f_->is_kernel ? flow::end : flow::back;
        last.text = "the end of the function";
        f_->code.push_back(last);
        for (const auto& [from, label] : jumps_) {
            const auto found = labels_.find(label);
            if (found == labels_.end()) in_.fail("no label " + label);
            f_->code[from].target = found->second;
        }
        f_->facts.local_bytes = f_->frame_bytes;
    }
    std::vector<declared> read_list() {
        std::vector<declared> all;
        in_.expect("(");
        while (!in_.take_if(")")) {
            in_.expect(".param");
            all.push_back(read_declared());
            in_.take_if(",");
        }
        return all;
    }
    void read_limit(const std::string& name) {
        if (in_.take_if(".maxntid")) {
            max_threads_ = 1;
            do max_threads_ *= static_cast<unsigned>(whole());
            while (in_.take_if(","));
        } else if (in_.is(".minnctapersm") || in_.is(".maxnreg")) {
            in_.take();
            whole();
        } else if (in_.is(".noreturn") || in_.is(".attribute")) {
            in_.take();
            if (in_.is("(")) in_.skip_behind(")");
        } else {
            in_.fail("'" + std::string(in_.now()) + "' of " + name + " is not read");
        }
    }
    std::uint32_t add_to_frame(const declared& d) {
        const std::uint32_t offset = rounded(f_->frame_bytes, std::max(d.align, 8u));
        f_->frame_bytes = rounded(offset + d.bytes, 16);
        return offset;
    }

    // ------------------------------------------------------------------------------------------ statements
    struct variable {
        place::origin from;
        std::uint32_t offset, bytes;
    };
    struct scope {
        std::map<std::string, int, std::less<>> registers;
        std::map<std::string, variable, std::less<>> variables;
    };

    void read_statement() {
        if (in_.take_if(".reg")) return read_registers();
        if (in_.is(".param") || in_.is(".local")) {
            in_.take();
            const declared d = read_declared();
            in_.expect(";");
            scopes_.back().variables[d.name] = {place::origin::frame, add_to_frame(d), d.bytes};
            return;
        }
        if (in_.take_if(".shared")) return read_shared();
        if (in_.take_if(".pragma")) return in_.skip_behind(";");
        if (in_.take_if(";")) return;
        const std::size_t begin = in_.at();
        instruction i;
        if (in_.take_if("@")) {
            i.guarded = true;
            i.guard_negated = in_.take_if("!");
            i.guard = register_named(in_.take());
        }
        const std::string word(in_.take());
        if (in_.take_if(":")) {
            labels_[word] = static_cast<std::uint32_t>(f_->code.size());
            return;
        }
        const opcode op(word);
        if (op.name() == "call") read_call(i);
        else read_operands(i, op);
        i.text = in_.text(begin, in_.at());
        in_.expect(";");
        i.kind = op.last_type();
        i.other = op.types.empty() ? type::none : op.types.front();
        i.count = op.has("v2") ? 2 : op.has("v4") ? 4 : 1;
        decode(i, op);
        f_->code.push_back(std::move(i));
    }
    void read_registers() {
        in_.take(); // whatever the type
        do {
            const std::string name(in_.take());
            if (in_.take_if("<")) {
                const std::int64_t n = whole();
                in_.expect(">");
                for (std::int64_t k = 0; k < n; ++k) add_register(name + std::to_string(k));
            } else {
                add_register(name);
            }
        } while (in_.take_if(","));
        in_.expect(";");
    }
    void add_register(const std::string& name) { scopes_.back().registers[name] = static_cast<int>(f_->registers++); }
    int find_register(std::string_view name) const {
        for (auto s = scopes_.rbegin(); s != scopes_.rend(); ++s)
            if (const auto found = s->registers.find(name); found != s->registers.end()) return found->second;
        return -1;
    }
    int register_named(std::string_view name) const {
        const int slot = find_register(name);
        if (slot < 0) in_.fail("no register " + std::string(name));
        return slot;
    }
    const variable* find_variable(std::string_view name) const {
        for (auto s = scopes_.rbegin(); s != scopes_.rend(); ++s)
            if (const auto found = s->variables.find(name); found != s->variables.end()) return &found->second;
        return nullptr;
    }
    static std::uint64_t constant(std::string_view w) {
        const std::string s(w);
        if (s.starts_with("0f") || s.starts_with("0F") || s.starts_with("0d") || s.starts_with("0D"))
            return std::stoull(s.substr(2), nullptr, 16);
        return std::stoull(s, nullptr, s.starts_with("0x") || s.starts_with("0X") ? 16 : 10);
    }
    static bool is_number(std::string_view w) { return !w.empty() && w[0] >= '0' && w[0] <= '9'; }

    // The place of a variable, or its address; for variables only.
    place place_of(std::string_view name) {
        place p;
        if (const variable* v = find_variable(name)) {
            p.from = v->from;
            p.offset = v->offset;
            return p;
        }
        if (const auto g = module_.globals.find(name); g != module_.globals.end()) {
            p.offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(g->second.begin));
            return p;
        }
        for (std::size_t k = 0; k < module_.shared.size(); ++k)
            if (module_.shared[k].name == name) {
                f_->shared_used.push_back(k);
                p.from = place::origin::shared;
                // Dynamic variables come after all others, whose size is known only at the end.
                p.offset = module_.shared[k].is_dynamic ? dynamic_shared : module_.shared[k].offset;
                return p;
            }
        in_.fail("no variable " + std::string(name));
    }
    void read_operands(instruction& i, const opcode& op) {
        const bool has_result = results_of(op) > 0;
        bool first = true;
        while (!in_.is(";")) {
            read_operand(i, op, first && has_result);
            first = false;
            if (!in_.take_if(",")) break;
        }
    }
    // 1 if the instruction writes its first operand.
    static int results_of(const opcode& op) {
        static constexpr std::string_view none[] = {"st",  "red",  "bra",  "bar",       "barrier",  "membar", "fence",
                                                    "ret", "exit", "trap", "nanosleep", "prefetch", "brkpt"};
        const bool writes_nothing = std::find(std::begin(none), std::end(none), op.name()) != std::end(none);
        if (op.name() == "multimem") return op.has("ld_reduce") ? 1 : 0;
        if (op.name() == "bar" || op.name() == "barrier") return op.has("red") ? 1 : 0;
        return writes_nothing ? 0 : 1;
    }
    void read_operand(instruction& i, const opcode& op, bool is_result) {
        if (in_.take_if("[")) {
            read_place(i);
            return;
        }
        if (in_.take_if("{")) {
            do read_value(i, op, is_result);
            while (in_.take_if(","));
            in_.expect("}");
            return;
        }
        read_value(i, op, is_result);
        if (is_result && in_.take_if("|")) read_value(i, op, true);
    }
    void read_place(instruction& i) {
        const std::string_view base = in_.take();
        if (is_number(base)) i.at.offset = static_cast<std::int64_t>(constant(base));
        else if (const int slot = find_register(base); slot >= 0) i.at.slot = slot;
        else i.at = place_of(base);
        if (in_.take_if("+")) i.at.offset += whole();
        else if (in_.is("-")) i.at.offset += whole();
        in_.expect("]");
    }
    void read_value(instruction& i, const opcode& op, bool is_result) {
        if (is_result) {
            if (i.tos == i.to.size()) in_.fail("too many results");
            const std::string_view w = in_.take();
            i.to[i.tos++] = w == "_" ? -1 : register_named(w);
            return;
        }
        source s;
        s.negated = in_.take_if("!");
        if (in_.is("-") || is_number(in_.now())) {
            s.constant = in_.is("-") ? static_cast<std::uint64_t>(whole()) : constant(in_.take());
        } else {
            const std::string_view w = in_.take();
            s.slot = find_register(w);
            if (s.slot < 0 && op.name() == "bra") {
                jumps_.emplace_back(f_->code.size(), std::string(w));
                return void();
            }
            if (s.slot < 0 && w.starts_with("%")) {
                i.hardware = special_named(w);
                return;
            }
            if (s.slot < 0) { // a variable's address
                i.at = place_of(w);
                i.is_address = true;
                return;
            }
        }
        if (i.froms == i.from.size()) in_.fail("too many operands");
        i.from[i.froms++] = s;
    }
    special special_named(std::string_view w) const {
        const auto found = std::find_if(std::begin(special_names), std::end(special_names),
                                        [&](const auto& x) { return x.first == w; });
        if (found == std::end(special_names)) in_.fail("no register " + std::string(w));
        return found->second;
    }

    // call (result), name, (arguments);
    void read_call(instruction& i) {
        std::vector<variable> results;
        if (in_.is("(")) {
            results = read_names();
            in_.take_if(",");
        }
        const std::string name(in_.take());
        if (find_register(name) >= 0) in_.fail("calls of a function by its address are not read");
        std::vector<variable> arguments;
        if (in_.take_if(",") && in_.is("(")) arguments = read_names();
        for (const variable& v : arguments) i.arguments.push_back({v.offset, 0, v.bytes});
        for (const variable& v : results) i.results.push_back({v.offset, 0, v.bytes});
        f_->calls.push_back(name);
        calls_.push_back({f_, f_->code.size(), name});
    }
    std::vector<variable> read_names() {
        std::vector<variable> all;
        in_.expect("(");
        while (!in_.take_if(")")) {
            const variable* v = find_variable(in_.now());
            if (v == nullptr) in_.fail("no variable " + std::string(in_.now()));
            all.push_back(*v);
            in_.take();
            in_.take_if(",");
        }
        return all;
    }

    // ------------------------------------------------------------------------------------------ at the end
    void link(function& f) {
        for (const auto& [caller, at, name] : calls_) {
            if (caller != &f) continue;
            instruction& i = f.code[at];
            const auto found = module_.functions.find(name);
            if (found == module_.functions.end() || found->second->code.empty()) {
                i.next = flow::trap;
                i.text += " (a function that is not in this module)";
                continue;
            }
            const function& to = *found->second;
            if (to.parameters.size() != i.arguments.size() || to.results.size() != i.results.size())
                in_.fail("a call of " + name + " has other parameters");
            for (std::size_t k = 0; k < i.arguments.size(); ++k) i.arguments[k].there = to.parameters[k].offset;
            for (std::size_t k = 0; k < i.results.size(); ++k) i.results[k].there = to.results[k].offset;
            i.callee = &to;
        }
        for (instruction& i : f.code)
            if (i.at.from == place::origin::shared && i.at.offset >= dynamic_shared)
                i.at.offset += rounded(module_.shared_bytes, 128) - dynamic_shared;
    }
    void count_shared(function& f) {
        std::vector<const function*> all{&f};
        std::vector<std::size_t> used;
        for (std::size_t k = 0; k < all.size(); ++k) {
            used.insert(used.end(), all[k]->shared_used.begin(), all[k]->shared_used.end());
            for (const std::string& name : all[k]->calls)
                if (const auto g = module_.functions.find(name); g != module_.functions.end())
                    if (std::find(all.begin(), all.end(), g->second.get()) == all.end()) all.push_back(g->second.get());
        }
        std::sort(used.begin(), used.end());
        used.erase(std::unique(used.begin(), used.end()), used.end());
        for (const std::size_t k : used) f.facts.shared_bytes += module_.shared[k].bytes;
    }

    static constexpr std::int64_t dynamic_shared = std::int64_t{1} << 32;
    struct call_site {
        function* caller;
        std::size_t at;
        std::string name;
    };
    word_reader in_;
    code_of_module module_;
    function* f_ = nullptr;
    bool is_extern_ = false;
    int arch_ = 0;
    unsigned max_threads_ = 1024;
    std::vector<scope> scopes_;
    std::map<std::string, std::uint32_t, std::less<>> labels_;
    std::vector<std::pair<std::size_t, std::string>> jumps_;
    std::vector<call_site> calls_;
};

} // namespace

code_of_module read_module(std::string_view ptx) { return reader(ptx).all(); }

} // namespace software_gpu
