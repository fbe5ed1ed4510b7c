# What runs inside: the services as docs/deploy.md installs them, with the addresses of their units.
trap "journalctl --no-pager --lines=100 --output=cat" ERR
useradd --system innet
for address in 192.168.1.1 192.168.1.2 10.0.0.3; do ip address add $address/32 dev lo; done
for port in 1 2; do
    ip link add eth$port type veth peer name host$port
    ip link set eth$port up
    ip link set host$port up
done
export PATH=/opt/innet/bin:$PATH INNET_CONTROLLER=192.168.1.1:9600 INNET_TLS=/root/certs
cd /root
make() { innet certificates make certs --host 192.168.1.1 --host 192.168.1.2 --host 10.0.0.3; }
installed() { (cd certs; install --owner root --group innet --mode 0640 "$@" /etc/innet/certs); }
python() { LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=/opt/checkout:/opt/packages /opt/python/bin/python3 "$@"; }
refused() { # its command fails, and says that the certificate has been revoked
    if "$@" > said 2>&1; then return 1; fi
    grep --quiet "this certificate has been revoked" said
}
asked() { INNET_TLS=certs/$1 innet job list; }
programmed() { python /results/program_switch.py 192.168.1.2:9559 certs/$1; }
summed() { INNET_TLS=certs/$1 innet pbox bench 10.0.0.3:19791 --workers 1 --megabytes 0.1 --steps 1; }
shown() {
    python -c "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], int(sys.argv[2]))), end='')" $@ \
        > shown.pem
}

make
files="ca.pem workers-ca.pem controller.pem controller-key.pem switch.pem switch-key.pem"
install --directory --owner root --group innet --mode 0750 /etc/innet/certs
installed $files
services="innet-switch innet-controller innet-pbox"
for service in $services; do # without the list of revoked certificates
    if systemctl start $service; then exit 1; fi
    systemctl stop $service
    journalctl --unit=$service --output=cat --no-pager | grep "there is no /etc/innet/certs/revoked.txt"
done
systemctl reset-failed
installed revoked.txt

systemctl start $services
innet switch add tor 192.168.1.2:9559 --ports 1-2
innet job create train --switch tor --workers 2 > /dev/null
summed .

innet certificates issue certs mallory --role admin --role worker
asked mallory
programmed mallory
summed mallory
innet certificates revoke certs mallory
installed revoked.txt
refused asked mallory
refused programmed mallory
refused summed mallory

make
installed $files
shown 192.168.1.1 9600; cmp shown.pem certs/controller.pem
shown 192.168.1.2 9559; cmp shown.pem certs/switch.pem
shown 10.0.0.3 19791; cmp shown.pem certs/controller.pem
asked .
programmed .
summed .
for service in $services; do test "$(systemctl show --property=NRestarts --value $service)" = 0; done

systemctl kill --kill-whom=main --signal=KILL $services
for service in $services; do
    until [ "$(systemctl show --property=NRestarts --value $service)" = 1 ] \
        && systemctl is-active $service; do sleep 0.2; done
done
innet job show train
until innet switch show tor | grep --quiet 'reachable.*yes'; do sleep 0.2; done
summed .

systemctl stop $services
for service in $services; do
    systemctl show --property=Result,ActiveState --value $service | xargs echo $service
done > /results/services
journalctl --unit=innet-controller --output=cat --no-pager > /results/journal
