#!/bin/sh
# Checks the prerequisites of the set-up. A missing prerequisite is reported in one line with the fix.
#
#   sh dev/check.sh python java maven chromium
#                                        check these, in this order; exit code 2 at the first that is missing
#   sh dev/check.sh --python             print the Python to use; nothing if there is none
#   sh dev/check.sh --newest-python      print the newest tested Python of this machine, on PATH or of pyenv
#   sh dev/check.sh --python-3.12        print the Python 3.12 of this machine, on PATH or of pyenv; nothing if there is none
#
# Plain POSIX sh: it runs without a Python. PYTHON and JAVA_HOME select the ones to use.
set -u

fail() {
    echo "prerequisite missing: $1" >&2
    exit 2
}

suits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    # 3.11 first: it is what the lock was made for.
    for candidate in ${PYTHON:-python3.11 python3 python3.12 python3.13}; do
        if command -v "$candidate" >/dev/null 2>&1 && suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
}

find_minor() {
    # pyenv's own command of this name fails unless the version is selected.
    latest=$(pyenv latest "3.$1" 2>/dev/null) && home=$(pyenv prefix "$latest" 2>/dev/null) || home=/nowhere
    for candidate in "python3.$1" "$home/bin/python"; do
        if command -v "$candidate" >/dev/null 2>&1 && suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

find_newest_python() {
    for minor in 13 12; do
        find_minor "$minor" && return
    done
    find_python
}

check_python() {
    python=$(find_python)
    if [ -z "$python" ]; then
        found=$("${PYTHON:-python3}" --version 2>&1) || found="no ${PYTHON:-python3}"
        fail "Python 3.11 or newer (found: $found); install it (Debian 12: apt-get install python3 python3-venv) or set PYTHON=/path/to/python3.11"
    fi
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
        fail "the venv module of $python; install it (Debian: apt-get install python3-venv)"
}

check_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        java=$JAVA_HOME/bin/java
        [ -x "$java" ] || fail "Java: JAVA_HOME=$JAVA_HOME holds no bin/java; correct it, or unset it to take java from PATH"
    else
        java=$(command -v java) ||
            fail "Java 17; install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    fi
    # "17.0.15", or "1.8.0_402" for the old ones.
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
    case $version in
        17 | 21) ;;
        *) fail "Java 17 or 21, which Spark 4 runs on ($java is version ${version:-unknown}); install it (Debian: apt-get install openjdk-17-jre-headless) and set JAVA_HOME to it" ;;
    esac
}

check_maven() {
    command -v mvn >/dev/null 2>&1 || fail "Maven, which fetches the jars; install it (Debian: apt-get install maven)"
}

check_chromium() {
    if [ -n "${CHROMIUM:-}" ]; then
        command -v "$CHROMIUM" >/dev/null 2>&1 ||
            fail "Chromium: CHROMIUM=$CHROMIUM cannot be run; correct it, or unset it to take chromium from PATH"
    else
        command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
            fail "Chromium, for the tests of Airflow's UI; install it (Debian: apt-get install chromium, or make browser as root) or set CHROMIUM"
    fi
}

for what in "$@"; do
    case $what in
        --python) find_python ;;
        --newest-python) find_newest_python ;;
        --python-3.*) find_minor "${what#--python-3.}" || : ;;
        python | java | maven | chromium) "check_$what" ;;
        *) echo "usage: sh dev/check.sh [--python] [--newest-python] [--python-3.MINOR] [python] [java] [maven] [chromium]" >&2; exit 64 ;;
    esac
done
