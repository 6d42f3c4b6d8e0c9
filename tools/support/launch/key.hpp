// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The key of a job that a launcher starts: random, in memory without a name, inherited by the ranks as a descriptor.
// Programs that cannot compute with a key run without one (bootstrap/protection.hpp).
#pragma once

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <string>

#include "system.hpp"

namespace collx::tools::launch {

/// Closed with the object, but not by exec: that is its purpose.
class inherited_key {
public:
    inherited_key() = default;
    inherited_key(const inherited_key&) = delete;
    inherited_key& operator=(const inherited_key&) = delete;

    /// Errors: refused.
    void make() {
        unsigned char random[32];
        if (::getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
            fail_with_errno("cannot make a key for the job");
        std::string text = "optional:";
        for (const unsigned char b : random)
            for (const int half : {b >> 4, b & 15}) text += "0123456789abcdef"[half];
        file_ = descriptor(::memfd_create("collx job key", MFD_ALLOW_SEALING));
        const bool is_written =
            file_.is_open() && ::write(file_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
            ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0;
        ::explicit_bzero(random, sizeof random);
        ::explicit_bzero(text.data(), text.size());
        if (!is_written)
            fail_with_errno("cannot keep a key for the job", [](int reason) {
                return reason == EFBIG ? "raise the limit of file size (ulimit -f)"
                                       : collx::detail::remedy_for_descriptor(reason);
            });
    }
    [[nodiscard]] int fd() const { return file_.get(); }

private:
    descriptor file_;
};

} // namespace collx::tools::launch
