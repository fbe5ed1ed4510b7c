#!/bin/bash
# Boot systemd in a container over this machine's file system. Whatever it writes goes to memory, but for
# the folder RESULTS. Its only target is the service "check", which runs /results/check and ends the container.
#
#   booted.sh RESULTS CHECKOUT PACKAGES COMMANDS PYTHON
#
# It needs a mount namespace of its own. The last four are folders: innet's, the one of its dependencies, the
# one of its commands, and Python's own. The services could not see them below /root or /tmp, so they are
# mounted below /opt.
set -e
results=$1
declare -A folders=([checkout]=$2 [packages]=$3 [commands]=$4 [python]=$5)
memory=$results/memory root=$results/root
mkdir -p "$memory" "$root"
mount -t tmpfs none "$memory"
mkdir "$memory/upper" "$memory/work"
mount -t overlay none -o "lowerdir=/,upperdir=$memory/upper,workdir=$memory/work" "$root"

mkdir -p "$root/opt/innet/bin" "$root/results"
for command in innet innet-switch; do
    cat > "$root/opt/innet/bin/$command" << END
#!/bin/sh
export LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=/opt/checkout:/opt/packages
exec /opt/python/bin/python3 /opt/commands/$command "\$@"
END
    chmod +x "$root/opt/innet/bin/$command"
done
units=$root/etc/systemd/system
cp "${folders[checkout]}"/examples/systemd/*.service "$units"
cat > "$units/check.service" << END
[Service]
Type=oneshot
ExecStart=/bin/bash -c "/bin/bash -ex /results/check > /results/log 2>&1; echo \$\$? > /results/rc; kill -s RTMIN+14 1"
TimeoutStartSec=infinity
END
cat > "$units/check.target" << END
[Unit]
Requires=basic.target check.service
After=basic.target
END
ln -sf check.target "$units/default.target"
mkdir -p "$root/etc/systemd/system.conf.d"
printf '[Manager]\nDefaultTimeoutStartSec=250\n' > "$root/etc/systemd/system.conf.d/slow.conf"
binds=()
for name in "${!folders[@]}"; do
    mkdir "$root/opt/$name"
    binds+=("--bind-ro=${folders[$name]}:/opt/$name")
done
exec systemd-nspawn --quiet --register=no --keep-unit --directory="$root" --private-network --boot \
    --machine="booted-$$" --bind="$results:/results" "${binds[@]}"
